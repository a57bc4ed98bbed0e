module github.com/dlock-go/dlock/integration

go 1.26.0

require (
	github.com/dlock-go/dlock v0.0.0-00010101000000-000000000000
	pgregory.net/rapid v1.3.0
)

require github.com/RussellLuo/timingwheel v0.0.0-20220218152713-54845bda3108 // indirect

replace github.com/dlock-go/dlock => ../

module github.com/dlock-go/dlock/integration

go 1.26

replace github.com/dlock-go/dlock => ../

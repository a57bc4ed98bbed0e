package docs

// packages maps the names that code in the documents uses without an import to their paths.
var packages = map[string]string{
	"context": "context", "errors": "errors", "flag": "flag", "fmt": "fmt", "http": "net/http", "httptest": "net/http/httptest",
	"io": "io", "log": "log", "os": "os", "signal": "os/signal", "slog": "log/slog", "sql": "database/sql", "sync": "sync",
	"synctest": "testing/synctest", "syscall": "syscall", "testing": "testing", "time": "time",

	"dlock":       "github.com/dlock-go/dlock",
	"dlocktest":   "github.com/dlock-go/dlock/dlocktest",
	"conformance": "github.com/dlock-go/dlock/conformance",
	"etcd":        "github.com/dlock-go/dlock/store/etcd",
	"fence":       "github.com/dlock-go/dlock/fence",
	"kv":          "github.com/dlock-go/dlock/store/kv",
	"memory":      "github.com/dlock-go/dlock/store/memory",
	"postgres":    "github.com/dlock-go/dlock/store/postgres",
	"otel":        "github.com/dlock-go/dlock/otel",
	"quorum":      "github.com/dlock-go/dlock/store/quorum",
	"redis":       "github.com/dlock-go/dlock/store/redis",
	"redisfence":  "github.com/dlock-go/dlock/fence/redisfence",
	"store":       "github.com/dlock-go/dlock/store",
	"ui":          "github.com/dlock-go/dlock/ui",
	"zookeeper":   "github.com/dlock-go/dlock/store/zookeeper",

	"clientv3":    "go.etcd.io/etcd/client/v3",
	"concurrency": "go.etcd.io/etcd/client/v3/concurrency",
	"goredis":     "github.com/redis/go-redis/v9",
	"pgx":         "github.com/jackc/pgx/v5",
	"pgxpool":     "github.com/jackc/pgx/v5/pgxpool",
	"redislock":   "github.com/bsm/redislock",
	"redsync":     "github.com/go-redsync/redsync/v4",
	"goredispool": "github.com/go-redsync/redsync/v4/redis/goredis/v9",
	"rueidis":     "github.com/redis/rueidis",
	"rueidislock": "github.com/redis/rueidis/rueidislock",
	"promhttp":    "github.com/prometheus/client_golang/prometheus/promhttp",
	"prometheus":  "go.opentelemetry.io/otel/exporters/prometheus",
	"metric":      "go.opentelemetry.io/otel/sdk/metric",
}

// values maps the variables that code in the documents uses without a declaration to their types.
var values = map[string]string{
	"ctx": "context.Context", "err": "error", "url": "string", "name": "string", "sku": "string",
	"client": "*dlock.Client", "lock": "*dlock.Mutex", "rw": "*dlock.RWMutex", "hold": "*dlock.Hold",
	"locks": "*redis.Store", "server": "*http.Server", "mux": "*http.ServeMux",
	"w": "http.ResponseWriter", "r": "*http.Request", "t": "*testing.T",
	"db": "*sql.DB", "pool": "*pgxpool.Pool", "tx": "*sql.Tx", "logger": "*slog.Logger",
	"redisClient": "rueidis.Client", "etcdClient": "*clientv3.Client", "goredisClient": "*goredis.Client",
	"onlyOperators": "func(http.Handler) http.Handler",
	"work":          "func(context.Context) error", "interval": "time.Duration",
}

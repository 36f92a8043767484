// Package config parses and checks RETRYPROXY_* variables, and builds the configuration of
// the data path from them.
//
// Start with Load: it reads the environment and the file named by RETRYPROXY_CONFIG_FILE, and
// returns a Settings together with every problem found. The structs Global, Shared and
// Matcher in this file are the only list of settings. Names, defaults, limits and
// descriptions are their tags; the parser, the search for misspelled names, the effective
// configuration and docs/reference/settings.md all read them from there. To add a setting, add a
// field.
//
// The packages that use a retry rule, a backoff, a route's pattern or an upstream (policy,
// proxy/route, proxy/upstream) also check it, so that there is one definition. Build then
// makes the data path's configuration. It reads what is outside the settings: certificates,
// the descriptor limit and the host's name.
package config

import (
	"time"

	"github.com/retryproxy/retryproxy/fleet/engine"
	"github.com/retryproxy/retryproxy/internal/config/configfile"
)

// Prefix is the prefix of the name of every variable of ours.
const Prefix = configfile.Prefix

// The tags of a field:
//
//	env         the name without Prefix
//	envDefault  the default in the form a user would write it; where there is none, shown tells the reader what applies
//	shown       the default as the documentation tells it, when it depends on other settings
//	batch, llm  the default under RETRYPROXY_PROFILE=batch and =llm
//	route       the name after RETRYPROXY_ROUTE_<NAME>_ where it differs from env
//	group       heading in the documentation, for this field and those that follow
//	unit        what kind of value it is: a key of the table units
//	min, max    limits, both included, written like the value
//	oneof       the allowed words
//	live        "no" when a reload cannot change it
//	about       one sentence, without default and unit: those are appended

// Global holds the settings of the whole process.
type Global struct {
	Listen            Address    `env:"LISTEN" example:":8000" group:"Listening" unit:"address" shown:":8080 inbound, 127.0.0.1:8080 outbound" live:"no" about:"Address on which clients are accepted."`
	TLSCert           string     `env:"TLS_CERT" shown:"none" unit:"path" about:"PEM file with the server certificate and its chain. If set, every TCP listener for clients speaks only TLS; unix sockets stay plain."`
	TLSKey            string     `env:"TLS_KEY" shown:"none" unit:"path" about:"PEM file with the key of TLS_CERT."`
	TLSClientCA       string     `env:"TLS_CLIENT_CA" shown:"none" unit:"path" about:"PEM file with the authorities that client certificates must come from. If unset, clients need no certificate."`
	Position          string     `env:"POSITION" envDefault:"auto" unit:"word" oneof:"auto,inbound,outbound" about:"inbound: in front of the application. outbound: in front of a remote service. auto is inbound if the upstream is loopback or a unix socket."`
	AdminListen       Address    `env:"ADMIN_LISTEN" example:"127.0.0.1:9797" envDefault:":9797" unit:"addressoff" live:"no" about:"Address for metrics, health checks and administration. off opens no listener."`
	AdminAllow        Prefixes   `env:"ADMIN_ALLOW" shown:"none" unit:"prefixes" live:"no" about:"Networks whose clients may read the status page and /config, as loopback may, such as 172.16.0.0/12 for a port that Docker publishes. The page is then opened by IP address or as localhost. They cannot change anything."`
	AdminTokenFile    string     `env:"ADMIN_TOKEN_FILE" shown:"none" unit:"path" live:"no" about:"File with a token of at least 16 bytes. Who sends it (Authorization: Bearer, or as the password in a browser) may read and change what loopback may, from anywhere. It is read for every such request."`
	TrustedProxies    Prefixes   `env:"TRUSTED_PROXIES" shown:"none" unit:"prefixes" about:"Peers whose X-Forwarded-*, Forwarded and X-Retryproxy-* request headers are trusted. If set, these headers are dropped from all other peers."`
	ProxyProtocolFrom Prefixes   `env:"PROXY_PROTOCOL_FROM" shown:"none" unit:"prefixes" about:"Peers, such as load balancers, that send a PROXY protocol header (version 1 or 2) with the address of the client. Each of their TCP connections must begin with it, or it is closed. From other peers the header is refused."`
	ForwardProxy      bool       `env:"FORWARD_PROXY" envDefault:"false" unit:"bool" about:"true: accept requests in absolute form, which clients with http_proxy send. Their host and port must be those of the route's upstream or match the route's HOST. CONNECT is always refused. No other address is ever dialled."`
	Routes            RouteNames `env:"ROUTES" example:"search,upload" shown:"none" unit:"routes" about:"Names of the routes. Each route needs at least one matcher, unless it is the FALLBACK of another. A request that matches no route uses the route default."`
	ConfigFile        string     `env:"CONFIG_FILE" shown:"none" unit:"path" live:"no" about:"File with more settings: YAML if its name ends in .yaml or .yml, else one NAME=VALUE per line. It is read again when it changes and on SIGHUP."`
	HTTPRouteFile     string     `env:"HTTPROUTE_FILE" shown:"none" unit:"path" live:"no" about:"File with HTTPRoutes of the Kubernetes Gateway API. Their rules become routes; what a rule leaves open follows the other settings. What has no equivalent is an error. It is read again when it changes and on SIGHUP."`
	Strict            bool       `env:"STRICT" envDefault:"true" unit:"bool" about:"true: an unknown RETRYPROXY_* variable stops the start. false: it is a warning."`

	MaxConnections        AutoCount     `env:"MAX_CONNECTIONS" envDefault:"auto" group:"Limits" unit:"autocount" max:"10000000" live:"no" about:"Maximum number of client connections. At the maximum, a new client replaces the one that is idle longest, or else one that does not read its response. If there is neither, accepting pauses. auto: half of the descriptors above 64 (a quarter of a limit below 128), because each client may need an upstream connection. A memory limit (cgroup or GOMEMLIMIT) lowers it to about 1000 busy clients for 128 MiB. 0: no limit."`
	MaxStreams            int           `env:"MAX_CONCURRENT_STREAMS" envDefault:"128" unit:"count" min:"0" max:"100000" about:"Maximum number of concurrent requests on one HTTP/2 client connection. MAX_CONNECTIONS and the memory limit bound the sum over all clients, and one connection gets at most half of that. A request that gets no slot within a second is answered with 503. 0: no HTTP/2 with clients."`
	MaxHeaderBytes        Size          `env:"MAX_HEADER_BYTES" envDefault:"64KiB" unit:"size" min:"1KiB" max:"16MiB" about:"Maximum size of the headers of a request or response. A larger request is refused with 431."`
	MaxHeaders            int           `env:"MAX_HEADERS" envDefault:"100" unit:"count" min:"1" max:"10000" about:"Maximum number of header lines. A request with more is refused with 431."`
	ReadHeaderTimeout     time.Duration `env:"READ_HEADER_TIMEOUT" envDefault:"10s" unit:"duration" min:"10ms" about:"Time to receive the headers of a request, from the first byte to the last."`
	ClientIdleTimeout     time.Duration `env:"CLIENT_IDLE_TIMEOUT" envDefault:"620s" unit:"duration" min:"1s" about:"How long an idle client connection is kept. The default is longer than that of cloud load balancers, so that they close first."`
	WriteTimeout          time.Duration `env:"WRITE_TIMEOUT" envDefault:"60s" unit:"duration" min:"100ms" about:"A client that reads nothing of its response for this long is disconnected."`
	TunnelIdleTimeout     time.Duration `env:"TUNNEL_IDLE_TIMEOUT" envDefault:"1h" unit:"duration" min:"1s" about:"An upgraded connection (WebSocket) without traffic for this long is closed."`
	MinBodyRate           Size          `env:"MIN_BODY_RATE" envDefault:"256" unit:"rate" max:"1GiB" about:"Minimum average rate of a request body, in bytes per second, after its first 10 seconds. 0: no minimum."`
	RetryBufferTotalBytes Size          `env:"RETRY_BUFFER_TOTAL_BYTES" envDefault:"64MiB" unit:"size" max:"64GiB" live:"no" about:"Size of the retry buffer: the memory for request bodies and responses kept for retries. When it is full, requests are still forwarded, but cannot be retried. If the process has a memory limit, the retry buffer is at most a quarter of it."`

	RetryPercent int `env:"RETRY_PERCENT" envDefault:"100" group:"Retries of the whole process" unit:"count" min:"0" max:"100" about:"Percentage of retries that are made, over all routes. 0 turns retries off. 'retryproxy retry-percent' changes it in a running process."`

	DrainDelay   time.Duration `env:"DRAIN_DELAY" envDefault:"0s" group:"Graceful shutdown" unit:"duration" max:"1h" about:"How long requests are still served as usual after SIGTERM, so that load balancers notice the failing readiness probe."`
	DrainTimeout time.Duration `env:"DRAIN_TIMEOUT" envDefault:"20s" unit:"duration" max:"24h" about:"How long requests in flight may take after DRAIN_DELAY. Then their connections are closed."`

	SharedEngine       engine.Engine `env:"SHARED" shown:"none" group:"Sharing" unit:"engine" live:"no" about:"Redis or Valkey server through which processes with the same upstream share rate-limit pauses, RATE_LIMIT and the retry budget. If it does not respond, each process continues on its own. Not part of the default container image."`
	SharedScope        string        `env:"SHARED_SCOPE" envDefault:"default" unit:"token" live:"no" about:"Only processes with the same scope share. Their routes must have the same name and upstream."`
	SharedPasswordFile string        `env:"SHARED_PASSWORD_FILE" shown:"none" unit:"path" live:"no" about:"File with the password for SHARED. It is read for every connection."`
	SharedCA           string        `env:"SHARED_CA" shown:"the system's" unit:"path" live:"no" about:"PEM file with the authorities for the certificate of a rediss server."`
	SharedCert         string        `env:"SHARED_CERT" shown:"none" unit:"path" live:"no" about:"PEM file with the client certificate for a rediss server. It is read for every connection."`
	SharedKey          string        `env:"SHARED_KEY" shown:"none" unit:"path" live:"no" about:"PEM file with the key of SHARED_CERT."`

	LogLevel           string `env:"LOG_LEVEL" envDefault:"info" group:"Logs and administration" unit:"word" oneof:"debug,info,warn,error" about:"Lowest level that is logged."`
	LogFormat          string `env:"LOG_FORMAT" envDefault:"json" unit:"word" oneof:"json,console" live:"no" about:"Format of the log lines on standard error."`
	AccessLog          bool   `env:"ACCESS_LOG" example:"true" envDefault:"false" unit:"bool" about:"Log one line per request: route, method, host, path without query, status, body bytes, duration, attempts with address and cause, user agent, request ID, trace ID and outcome. Failed requests are logged at warn."`
	GaveUpLogPerMinute int    `env:"GAVE_UP_LOG_PER_MINUTE" envDefault:"10" unit:"count" min:"0" max:"1000000" about:"Without ACCESS_LOG: log lines per minute and route about failed requests. The rest is counted in one line at the end of the minute."`
	PProf              bool   `env:"PPROF" envDefault:"false" unit:"bool" live:"no" about:"Serve Go profiles on the admin listener, to loopback and with the token of ADMIN_TOKEN_FILE."`
}

// Shared holds the settings that a route may have of its own; where it has
// none, the global one of the same name applies.
type Shared struct {
	Upstream           Upstream      `env:"UPSTREAM" example:"http://app:3000" group:"Upstream" unit:"upstream" shown:"none, must be set" about:"Where requests are sent. If a name has several addresses, all of them are endpoints. Several addresses or names, separated by commas, form one upstream. A path, as in http://app:80/v2, is put before the path of every request."`
	UpstreamCA         string        `env:"UPSTREAM_CA" shown:"the system's" unit:"path" about:"PEM file with the authorities for the certificate of an https upstream."`
	UpstreamCert       string        `env:"UPSTREAM_CERT" shown:"none" unit:"path" about:"PEM file with the client certificate for an https upstream."`
	UpstreamKey        string        `env:"UPSTREAM_KEY" shown:"none" unit:"path" about:"PEM file with the key of UPSTREAM_CERT."`
	UpstreamServerName string        `env:"UPSTREAM_SERVER_NAME" shown:"the upstream's host" unit:"name" about:"Server name (SNI) sent to an https upstream and expected in its certificate."`
	UpstreamHost       HostRule      `env:"UPSTREAM_HOST" envDefault:"auto" unit:"host" about:"Host header that is sent. preserve: the client's. upstream: the upstream's. auto: the upstream's if the client named retryproxy or loopback, else the client's. Any other value is sent as it is."`
	DialTimeout        time.Duration `env:"DIAL_TIMEOUT" envDefault:"3s" shown:"3s, or ATTEMPT_TIMEOUT when that is shorter" unit:"duration" min:"1ms" max:"10m" about:"Time to connect to the upstream, TLS handshake included."`
	EjectAfter         int           `env:"EJECT_AFTER" envDefault:"5" unit:"count" min:"0" max:"1000000" about:"Outlier ejection, if the upstream has several endpoints: number of consecutive failures (no connection, reset, ATTEMPT_TIMEOUT, 502, 503, 504) after which an endpoint is ejected. At most half of the endpoints are ejected at once. 0: no ejection."`
	EjectFor           time.Duration `env:"EJECT_FOR" envDefault:"30s" unit:"duration" min:"100ms" max:"1h" about:"How long an endpoint is ejected the first time. The nth ejection lasts n times as long, up to ten times."`
	HealthPath         ProbePath     `env:"HEALTH_PATH" envDefault:"off" unit:"probepath" about:"Path of health checks, if the upstream has several endpoints: each gets a GET every HEALTH_INTERVAL. After 3 checks in a row without a status from 200 to 399 it gets no requests until 2 have passed. If more than half of the endpoints are ejected or unhealthy, all are used. off: endpoints are judged by their requests only."`
	HealthInterval     time.Duration `env:"HEALTH_INTERVAL" envDefault:"10s" unit:"duration" min:"100ms" max:"1h" about:"Time between health checks of an endpoint, give or take a tenth. A check fails after this time, but after 1s at the earliest and 5s at the latest."`
	Balance            Balance       `env:"BALANCE" envDefault:"least-requests" unit:"balance" about:"Which endpoint gets a request, if the upstream has several. least-requests: of two random ones the one with fewer requests in flight. round-robin: one after the other. hash:Name: the same one for the same value of that request header, as far as endpoints stay; requests without the header go by least-requests. A retry goes to another endpoint in any case."`

	Forwarded             bool         `env:"FORWARDED" envDefault:"false" group:"Forwarding" unit:"bool" about:"Add a Forwarded header (RFC 7239) beside X-Forwarded-*."`
	Via                   string       `env:"VIA" shown:"none" unit:"token" about:"Pseudonym for a Via header in requests and responses. If unset, none is added, because some servers stop compressing when they see it."`
	IdempotencyKey        string       `env:"IDEMPOTENCY_KEY" envDefault:"accept" unit:"word" oneof:"accept,generate" about:"accept: a request with an Idempotency-Key header may be retried whatever its method. generate: also add a key to requests without one. All attempts have the same key. Use it only if the upstream honours the key."`
	ResponseHeaders       bool         `env:"RESPONSE_HEADERS" envDefault:"true" unit:"bool" about:"Add X-Retryproxy-Attempts, X-Retryproxy-Reason and, if the upstream sent none, X-Request-Id to responses."`
	RequestHeadersSet     HeaderFields `env:"REQUEST_HEADERS_SET" shown:"none" unit:"headers" about:"Headers set in requests to the upstream, in place of the client's of the same name, such as X-Env: prod. A comma begins the next header if a name and a colon follow it."`
	RequestHeadersRemove  HeaderList   `env:"REQUEST_HEADERS_REMOVE" shown:"none" unit:"headernames" about:"Headers of clients that are not sent to the upstream."`
	RequestHeadersFile    string       `env:"REQUEST_HEADERS_FILE" shown:"none" unit:"path" about:"File with secret headers for the upstream, one per line, such as Authorization: Bearer ... It is read again when it changes and never logged or shown. FALLBACK and a route with its own UPSTREAM do not get them."`
	ResponseHeadersSet    HeaderFields `env:"RESPONSE_HEADERS_SET" shown:"none" unit:"headers" about:"Headers set in all final responses, in place of the upstream's of the same name."`
	ResponseHeadersRemove HeaderList   `env:"RESPONSE_HEADERS_REMOVE" shown:"none" unit:"headernames" about:"Headers of the upstream's responses that clients do not get."`
	MaxBodyBytes          Size         `env:"MAX_BODY_BYTES" envDefault:"0" unit:"size" about:"Maximum size of a request body. A larger one is refused with 413. 0: no limit."`

	Profile         string        `env:"PROFILE" example:"llm" envDefault:"interactive" group:"Retries" unit:"word" oneof:"interactive,batch,llm" about:"Set of defaults. batch: up to 8 retries within 180 s with additive backoff, for clients that can wait. llm: for the API of a language model. POST is retried after 429, 503 and 529, but never after a failure that may have been billed. Slow generations are not given up. Streams are retried until their first content."`
	RetryOn         RetryOn       `env:"RETRY_ON" example:"500-504,429,connect-failure" envDefault:"5xx,429,connect-failure,reset,attempt-timeout" unit:"retryon" about:"Failures that are retried: codes, ranges such as 500-504, 5xx (without 501, 505, 511), gateway-error (502-504), connect-failure, reset, attempt-timeout, grpc- and a gRPC status (such as grpc-unavailable, which applies to every method), retriable-header:Name[=value], !code to except one, or none."`
	MaxRetries      int           `env:"MAX_RETRIES" example:"2" envDefault:"3" batch:"8" llm:"8" unit:"count" min:"0" max:"100" about:"Maximum number of retries of one request. The first attempt does not count. 0 turns retries off."`
	RetryWindow     time.Duration `env:"RETRY_WINDOW" envDefault:"0s" unit:"duration" about:"No retry begins later than this after the first attempt began. 0: no limit."`
	RetryMethods    MethodSet     `env:"RETRY_METHODS" envDefault:"GET,HEAD,OPTIONS,TRACE,PUT,DELETE" unit:"methodset" about:"Methods that may be retried after they were sent (RFC 9110 section 9.2.2)."`
	RetryUnsafe     bool          `env:"RETRY_UNSAFE" envDefault:"false" unit:"bool" about:"true: retry requests of every method, POST and PATCH included, after they were sent. The upstream may then do the work twice."`
	RetryRejected   Rejected      `env:"RETRY_REJECTED" envDefault:"429" llm:"429,503,529" unit:"statusset" about:"Statuses of RETRY_ON that mean that the upstream did not do the work. They are retried for every method, POST and PATCH included. A rate limiter sends 429 before the work begins. If an API means the same by 503 and 529, set 429,503,529."`
	FatalErrorCodes ErrorCodes    `env:"FATAL_ERROR_CODES" shown:"none besides the usual ones" unit:"errorcodes" about:"Error codes in the JSON body of a failed response that end retries, because the account is used up and no wait helps. They are added to those in docs/reference/retry-after.md, such as insufficient_quota; !code removes one. An entry with a space matches a text in the error message. none: no code ends retries."`
	LayeredRetries  string        `env:"LAYERED_RETRIES" envDefault:"halve" unit:"word" oneof:"allow,halve,deny" about:"How many retries a request gets if it is itself a retry of another proxy. allow: all. halve: half. deny: none."`

	Backoff              string        `env:"BACKOFF" envDefault:"full-jitter" batch:"additive" group:"Backoff" llm:"additive" unit:"strategy" about:"Backoff strategy: how the wait before a retry is chosen."`
	BackoffBase          time.Duration `env:"BACKOFF_BASE" example:"250ms" shown:"the strategy's own, 100ms for full-jitter" unit:"duration" min:"1us" about:"First wait, before jitter."`
	BackoffFactor        float64       `env:"BACKOFF_FACTOR" shown:"the strategy's own, 2 for full-jitter" unit:"number" min:"1" max:"1000" about:"Factor between a wait and the next one."`
	BackoffMax           time.Duration `env:"BACKOFF_MAX" shown:"the strategy's own, 32s for full-jitter" unit:"duration" min:"1us" about:"Longest wait."`
	BackoffJitter        float64       `env:"BACKOFF_JITTER" shown:"0.1" unit:"number" min:"0.001" max:"1" about:"Strategy normal: standard deviation of a wait, as a fraction of it."`
	BackoffSpread        time.Duration `env:"BACKOFF_SPREAD" shown:"1s" unit:"duration" min:"1us" about:"Strategy additive: longest random addition to a wait."`
	BackoffRatio         float64       `env:"BACKOFF_RATIO" shown:"1" unit:"number" min:"0.001" max:"1000" about:"Strategy ratio: ratio of a wait to the time that has passed before it."`
	BackoffSlots         int           `env:"BACKOFF_SLOTS" shown:"10" unit:"count" min:"1" max:"32" about:"Strategy slots: ceiling of the slot number. After it, the strategy begins again or stays."`
	BackoffStay          bool          `env:"BACKOFF_STAY" shown:"false" unit:"bool" about:"Strategy slots: true stays at the ceiling instead of beginning again."`
	BackoffExtra         time.Duration `env:"BACKOFF_EXTRA" shown:"0s" unit:"duration" about:"Maximum of an extra random wait, added for every strategy and on top of its maximum. It spreads clients whose waits would otherwise be equal."`
	BackoffThrottledBase time.Duration `env:"BACKOFF_THROTTLED_BASE" envDefault:"1s" shown:"1s, or BACKOFF_MAX when that is shorter" unit:"duration" min:"1us" about:"First wait after a 429, or another status of RETRY_REJECTED, without Retry-After."`

	BudgetRatio        Ratio   `env:"BUDGET_RATIO" envDefault:"0.2" group:"Budget" llm:"1" unit:"ratio" max:"10" about:"Retry budget: retries allowed per request to the same upstream, over 10 seconds. With SHARED it covers all processes of the scope. off: no budget."`
	BudgetMinPerSecond float64 `env:"BUDGET_MIN_PER_SECOND" envDefault:"1" unit:"number" min:"0" max:"10000" about:"Retries per second that are allowed even with few requests."`
	BudgetBurst        int     `env:"BUDGET_BURST" envDefault:"10" unit:"count" min:"1" max:"1000000" about:"Retries that a quiet upstream can save up."`

	Breaker          string           `env:"BREAKER" envDefault:"queue" group:"Circuit breaker and limits" unit:"word" oneof:"queue,fail-fast,off" about:"What happens to requests while the circuit breaker of their upstream is open. queue: they wait for up to QUEUE_TIMEOUT. fail-fast: they are answered with 503 and Retry-After at once. off: there is no circuit breaker."`
	QueueTimeout     time.Duration    `env:"QUEUE_TIMEOUT" example:"5s" shown:"20s inbound, 10s outbound" llm:"60s" unit:"duration" min:"1ms" max:"1h" about:"Longest time that a request is queued while the circuit breaker is open, within REQUEST_TIMEOUT."`
	QueueMax         int              `env:"QUEUE_MAX" envDefault:"4096" unit:"count" min:"1" max:"1000000" about:"Maximum number of requests queued for one upstream. When the queue is full, the request that has waited longest is answered with 503."`
	QueueOrder       string           `env:"QUEUE_ORDER" envDefault:"newest" unit:"word" oneof:"newest,oldest" about:"Which queued request is served first. newest: the latest, which has the most time left. oldest: in order of arrival. If the queue is full, both drop the request that has waited longest."`
	BreakerOn        BreakerOn        `env:"BREAKER_ON" envDefault:"502,503,504" unit:"breakeron" about:"Statuses that count as failures for the circuit breaker. Failed connections and silence always count. Add 500 if it means that the upstream as a whole fails."`
	BreakerBackoff   BreakerBackoff   `env:"BREAKER_BACKOFF" envDefault:"auto" unit:"breakerbackoff" about:"Wait between probes while the circuit breaker is open. It depends on the number of failed probes since the last success. auto: 25ms to 150ms after refused connections, 100ms to 500ms after other failures."`
	ProbePath        ProbePath        `env:"PROBE_PATH" envDefault:"off" unit:"probepath" about:"Path that is probed with GET while the circuit breaker is open. It is sent as it is, without the path of UPSTREAM. Any status from 200 to 499 except 429 closes it. off: a probe is a connection or one of the queued requests."`
	ConcurrencyLimit ConcurrencyLimit `env:"CONCURRENCY_LIMIT" envDefault:"adaptive" llm:"off" unit:"limit" about:"Maximum number of requests in flight to one upstream. adaptive: the limit is learned, and binds only while the upstream is overloaded. A number: a fixed limit. off: no limit."`
	Fallback         Fallback         `env:"FALLBACK" envDefault:"none" unit:"fallback" about:"What responds if all attempts fail: a fixed status code with a body, another upstream, or with route:NAME the upstream of another route, with its certificates and headers, such as another API key. Up to 4 of them, separated by commas, are asked in turn; a fixed response is the last. Each upstream gets one attempt, and only if the request can be sent again. A route that is only a fallback needs no matcher."`
	ClientThrottling string           `env:"CLIENT_THROTTLING" envDefault:"off" unit:"word" oneof:"on,off" about:"Client-side throttling: answer requests with 503 without sending them while the upstream rejects nearly all (429, 502, 503, 504 or no response)."`

	HedgeAfter HedgeAfter `env:"HEDGE_AFTER" envDefault:"off" group:"Hedging" unit:"hedge" about:"Hedging: if there is no response after this time, a second attempt is sent beside the first. The first good response is used. Only requests that may be retried are hedged. p95: the 95th percentile of response times, once 200 are known (p99: 1000). A hedge counts against MAX_RETRIES and the retry budget, which bounds the added load."`

	RateLimitPauseKey PauseKey      `env:"RATE_LIMIT_PAUSE_KEY" envDefault:"none" group:"Rate-limit pauses" unit:"pausekey" about:"Which requests share the pause that a 429 asks for. none: each request waits alone. route: all requests of the route. header:Name: those with the same value of that header. json:model: those with the same model in a JSON body. A request without enough time for the pause is not sent, but answered with 429 and Retry-After."`
	RateLimitPauseMax time.Duration `env:"RATE_LIMIT_PAUSE_MAX" envDefault:"1m" batch:"3m" llm:"2m" unit:"duration" min:"1ms" max:"24h" about:"Longest wait that an upstream may ask for. A response that asks for a longer one is passed to the client at once, and its pause is not shared."`

	RateLimit     RateLimit     `env:"RATE_LIMIT" envDefault:"off" group:"Rate limit" unit:"ratelimit" about:"Maximum rate of attempts to the upstream, retries and hedges included, spread evenly. With SHARED it covers all processes of the scope. Only 98.5 % of it is used, because an upstream may count a little differently and answer the rest with 429. auto: the limits of requests and tokens are learnt from the headers of responses (docs/llm.md)."`
	RateLimitKey  RateLimitKey  `env:"RATE_LIMIT_KEY" envDefault:"upstream" unit:"ratelimitkey" about:"What RATE_LIMIT applies to. upstream: all requests to the upstream together. route: those of the route. header:Name: each value of that header has its own limit, and all requests without the header share one. json:model: the same for the model that a JSON body names in its first 64 KiB. Except with route, routes to the same upstream share the limit if their RATE_LIMIT and RATE_LIMIT_KEY are equal. Up to 4096 values have their own limit; the rest share one."`
	TokenLimit    TokenLimit    `env:"TOKEN_LIMIT" envDefault:"off" unit:"tokenlimit" about:"Maximum number of tokens of a language model's API, for each key of RATE_LIMIT_KEY. As at the API, all of it may be used at once, and it is renewed evenly. A request counts as its length divided by 4, and the output that it allows, until its response says what it used."`
	RateLimitWait time.Duration `env:"RATE_LIMIT_WAIT" envDefault:"1s" llm:"1m" unit:"duration" max:"1h" about:"Longest time that a request waits for RATE_LIMIT, within REQUEST_TIMEOUT. A request that would wait longer is answered with 429 and Retry-After at once. 0s: no request waits, except up to 150ms for a lease with SHARED."`

	RequestTimeout      time.Duration   `env:"REQUEST_TIMEOUT" example:"10s" envDefault:"30s" batch:"180s" group:"Timeouts and buffers" llm:"10m" unit:"duration" max:"24h" about:"Maximum time of all attempts and waits, from the end of the request to the headers of the response. 0: no limit."`
	AttemptTimeout      AutoDuration    `env:"ATTEMPT_TIMEOUT" example:"2s" envDefault:"auto" llm:"0s" unit:"autoduration" max:"24h" about:"Maximum time of an attempt that is not the last. The last attempt has all the time that is left, unless the word hard follows, as in 2s hard. 0: no limit. auto: no attempt is given up while it may still get a response. Instead, if the upstream has several endpoints and the request may be retried, a second attempt goes to another endpoint after the 99th percentile of response times, at least 10s. It counts as a retry. The first good response is used."`
	ClientDeadlines     DeadlineHeaders `env:"CLIENT_DEADLINES" envDefault:"x-request-timeout,grpc-timeout,x-envoy-expected-rq-timeout-ms,x-stainless-timeout,x-stainless-read-timeout" unit:"deadlines" about:"Request headers in which a client may send its deadline: x-request-timeout in seconds or as a duration, grpc-timeout in gRPC's notation, x-envoy-expected-rq-timeout-ms in milliseconds, the x-stainless headers of the LLM vendors' own clients in seconds. The request ends then, or at REQUEST_TIMEOUT if that is earlier. The upstream gets the time left in the same header, but x-stainless headers are forwarded unchanged. While grpc-timeout is in the list, a gRPC call has no other timeout, because it may be a stream."`
	FirstContentTimeout time.Duration   `env:"FIRST_CONTENT_TIMEOUT" envDefault:"0s" llm:"60s" unit:"duration" max:"24h" about:"How long an event stream (text/event-stream) is held back, until its first event with content. The time begins when the request was sent. If the stream has an error or ends before its content, the attempt has failed and may be retried. 0: event streams are relayed from their first byte."`
	BodyIdleTimeout     time.Duration   `env:"BODY_IDLE_TIMEOUT" envDefault:"60s" llm:"5m" unit:"duration" min:"100ms" about:"Longest pause within a request or response body."`
	RetryBufferBytes    Size            `env:"RETRY_BUFFER_BYTES" envDefault:"1MiB" shown:"1MiB, or RETRY_BUFFER_TOTAL_BYTES when that is less" llm:"16MiB" unit:"size" max:"64GiB" about:"Maximum size of a request body that is kept for retries. A request with a larger body is sent once."`
	ResponseBufferBytes Size            `env:"RESPONSE_BUFFER_BYTES" envDefault:"64KiB" shown:"64KiB, or RETRY_BUFFER_TOTAL_BYTES when that is less" unit:"size" max:"1GiB" about:"Maximum size of a failed response that is kept during a retry. If it is larger, the client gets it and there is no retry."`

	DryRun         bool           `env:"DRY_RUN" envDefault:"false" group:"Trying things out" unit:"bool" about:"true: send every request once, return its response unchanged, and only count the retries that would have been made, by reason. Circuit breaker, limits, pauses, throttling and fallback are off. Timeouts still apply."`
	FaultInjection FaultInjection `env:"FAULT_INJECTION" envDefault:"off" unit:"fault" about:"Faults injected into attempts, for tests only: a status, a lost connection or a delay, each with its percentage of attempts. Every start, reload and check warns about them. A route with faults shares no circuit breaker, limit, budget or connections with other routes."`
}

// Matcher holds the settings that only a route has: which requests it matches and which
// prefix it strips from their path.
type Matcher struct {
	Host        string  `env:"HOST" group:"Matching of a route" shown:"any" unit:"hostpattern" about:"Requests for this host, or for one of several. *.example.com matches all names below example.com."`
	Path        string  `env:"PATH" shown:"any" unit:"pathpattern" about:"Requests for this path, or for one of several. /search/* matches /search and everything below it, /users/*/orders any one name between."`
	Methods     Methods `env:"METHODS" shown:"any" unit:"methods" about:"Requests with one of these methods."`
	Header      string  `env:"HEADER" shown:"any" unit:"header" about:"Requests with this header, and with this value if one is given: Name or Name=value."`
	Model       string  `env:"MODEL" shown:"any" unit:"models" about:"Requests whose JSON body names this model, or one of several. The first 64 KiB of bodies are read for it. Not together with HEADER."`
	Listen      Address `env:"LISTEN" shown:"the main listener" unit:"address" live:"no" about:"Requests accepted on this address, which is opened for the route."`
	StripPrefix string  `env:"STRIP_PREFIX" shown:"none" unit:"pathprefix" about:"Prefix that is removed from the path before the request is sent upstream. The route's PATH must begin with it."`
}

// Route is a named route with all its settings.
type Route struct {
	Name string
	Matcher
	Shared

	own    map[string]string // key in Shared or Matcher -> variable that set it for this route
	parent *Route            // its variables apply if there is no own one; nil for the default route
}

// Settings is the result of Load. It does not change afterwards and is safe for concurrent
// reads.
type Settings struct {
	Global
	Default Route   // for requests that match no route; its Shared are the global settings
	Routes  []Route // in the order of RETRYPROXY_ROUTES

	own map[string]string // key in Global -> variable that set it
}

// Variable returns the variable that set the key of Shared or Matcher for this route:
// RETRYPROXY_ROUTE_<NAME>_<KEY>, RETRYPROXY_<KEY>, or "" if the default applies.
func (r *Route) Variable(key string) string {
	for at := r; at != nil; at = at.parent {
		if name, set := at.own[key]; set {
			return name
		}
	}
	return ""
}

// Blame returns the variable to change for a key: the one that set it, or else the one that
// would set it for all routes.
func (r *Route) Blame(key string) string {
	if name := r.Variable(key); name != "" {
		return name
	}
	return Prefix + key
}

// Variable returns the variable that set the key of Global; "" if the default applies.
func (s *Settings) Variable(key string) string { return s.own[key] }

// All returns the default route followed by the named ones.
func (s *Settings) All() []*Route {
	all := make([]*Route, 0, len(s.Routes)+1)
	all = append(all, &s.Default)
	for i := range s.Routes {
		all = append(all, &s.Routes[i])
	}
	return all
}

// anyRoute reports whether some named route has what has says.
func (s *Settings) anyRoute(has func(r *Route) bool) bool {
	for i := range s.Routes {
		if has(&s.Routes[i]) {
			return true
		}
	}
	return false
}

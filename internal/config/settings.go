// Package config parses and checks RETRYPROXY_* variables, and builds the configuration of
// the data path from them.
//
// Start with Load: it reads the environment and the file named by RETRYPROXY_CONFIG_FILE, and
// returns a Settings together with every problem found. The structs Global, Shared and
// Matcher in this file are the only list of settings. Names, defaults, limits and
// descriptions are their tags; the parser, the search for misspelled names, the effective
// configuration and docs/reference/settings.md all read them from there. To add a setting, add a
// field. The other files, in the order of their work:
//
//   - load.go collects the variables, and origins.go remembers which file sets them. unknown.go
//     explains unknown names, some by hints.go.
//   - parse.go parses values. Their types are in units.go, values.go, addresses.go, lists.go,
//     headers.go and fallback.go.
//   - inherit.go is what a route takes from profiles and global settings. derive.go has the defaults
//     that depend on other settings.
//   - check.go and checkroute.go find settings that contradict each other. Problems are in
//     problems.go.
//   - build.go and policy.go make the data path's configuration, and blame.go finds the setting for
//     its errors. changes.go is what a reload changes.
//   - reference.go and convert.go are for documentation and the command convert.
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
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/hedge"
	"github.com/retryproxy/retryproxy/policy/ratelimit"
	"github.com/retryproxy/retryproxy/policy/status"
	"github.com/retryproxy/retryproxy/proxy/forward"
)

// Prefix is the prefix of the name of every variable of ours.
const Prefix = configfile.Prefix

// The tags of a field:
//
//	env         the name without Prefix
//	envDefault  the default in the syntax of the setting; without one, shown describes what applies
//	shown       the default for the documentation, if it depends on other settings
//	inbound     the default by position, as is outbound; shown follows both
//	batch, llm  the default with RETRYPROXY_PROFILE=batch and =llm
//	route       the name after RETRYPROXY_ROUTE_<NAME>_ if it differs from env
//	group       heading in the documentation, for an embedded struct
//	unit        the kind of value: a key of the table units
//	min, max    limits, both included, in the syntax of the setting
//	oneof       the allowed words
//	live        "no" if a reload cannot change it
//	about       one sentence, without default and unit, which are appended

// Global holds the settings of the whole process.
type Global struct {
	ClientSettings  `group:"Clients"`
	ProcessSettings `group:"Process"`
	AdminSettings   `group:"Administration and logs"`
}

// Shared holds the settings that a route may have. If a route does not set one, the global setting
// with the same name applies.
type Shared struct {
	EndpointSettings  `group:"Listener and upstream"`
	RetrySettings     `group:"Retries"`
	BackoffSettings   `group:"Backoff"`
	BudgetSettings    `group:"Retry budget"`
	TimeoutSettings   `group:"Timeouts"`
	BreakerSettings   `group:"Circuit breaker and limits"`
	RateLimitSettings `group:"Rate limits"`
	HeaderSettings    `group:"Headers"`
	TrialSettings     `group:"Trying things out"`
}

// Matcher holds the settings that only a route has: which requests it matches and which
// prefix it strips from their path. LISTEN, which matches as well, is in Shared.
type Matcher struct {
	MatcherSettings `group:"Matching of a route"`
}

// ClientSettings are about the connections of clients.
type ClientSettings struct {
	TLSCert           string   `env:"TLS_CERT" shown:"none" unit:"path" about:"PEM file with the server certificate and its chain. If set, every TCP listener for clients speaks only TLS; unix sockets stay plain."`
	TLSKey            string   `env:"TLS_KEY" shown:"in the file of TLS_CERT, or beside it: tls.key for tls.crt" unit:"path" about:"PEM file with the key of TLS_CERT, such as certbot's privkey.pem for fullchain.pem."`
	TLSClientCA       string   `env:"TLS_CLIENT_CA" shown:"none" unit:"path" about:"PEM file with the authorities that client certificates must come from. If unset, clients need no certificate."`
	TLSMinVersion     string   `env:"TLS_MIN_VERSION" envDefault:"1.2" unit:"word" oneof:"1.2,1.3" about:"Lowest version of TLS that clients may use."`
	Position          string   `env:"POSITION" envDefault:"auto" unit:"word" oneof:"auto,inbound,outbound" about:"inbound: in front of the application. outbound: in front of a remote service. auto is inbound if the upstream is loopback or a unix socket. An outbound retryproxy is also a forward proxy for clients with http_proxy: it accepts absolute URLs that name the route's upstream or match the route's HOST, and refuses others and CONNECT."`
	TrustedProxies    Prefixes `env:"TRUSTED_PROXIES" shown:"none" unit:"prefixes" about:"Peers whose X-Forwarded-*, Forwarded and X-Retryproxy-* request headers are trusted. If set, these headers are dropped from all other peers."`
	ProxyProtocolFrom Prefixes `env:"PROXY_PROTOCOL_FROM" shown:"none" unit:"prefixes" about:"Peers, such as load balancers, that send a PROXY protocol header (version 1 or 2) with the address of the client. A TCP connection of theirs that does not begin with this header is closed. From other peers the header is refused."`
}

// ProcessSettings are about the process and what its requests share.
type ProcessSettings struct {
	Routes                RouteNames    `env:"ROUTES" example:"search,upload" shown:"none" unit:"routes" about:"Names of the routes. Each route needs at least one matcher, unless it is the FALLBACK of another. A request that matches no route uses the route default."`
	ConfigFile            string        `env:"CONFIG_FILE" shown:"none" unit:"path" live:"no" about:"File with more settings: YAML if its name ends in .yaml or .yml, else one NAME=VALUE per line. The file is read again when it changes and on SIGHUP."`
	RetryBufferTotalBytes Size          `env:"RETRY_BUFFER_TOTAL_BYTES" envDefault:"64MiB" unit:"size" max:"64GiB" live:"no" about:"Size of the retry buffer: the memory for request bodies and responses kept for retries. When it is full, requests are still forwarded, but cannot be retried. If the process has a memory limit, the retry buffer is at most a quarter of it."`
	SharedEngine          engine.Engine `env:"SHARED" shown:"none" unit:"engine" live:"no" about:"Redis or Valkey server through which processes with the same upstream share rate-limit pauses, RATE_LIMIT and the retry budget. If the server does not respond, each process continues on its own. Options follow a question mark. scope=NAME: only processes with the same scope share; their routes must have the same name and upstream. password_file=FILE. With rediss, ca=FILE has the authorities for the server's certificate, and cert=FILE the client certificate with its key."`
	DrainDelay            time.Duration `env:"DRAIN_DELAY" envDefault:"0s" unit:"duration" max:"1h" about:"How long requests are still served as usual after SIGTERM, so that load balancers notice the failing readiness probe."`
	DrainTimeout          time.Duration `env:"DRAIN_TIMEOUT" envDefault:"20s" unit:"duration" max:"24h" about:"How long requests in flight may take after DRAIN_DELAY. Then their connections are closed. Meanwhile no request waits for a retry: it gets the last response at once. The default is less than the default of REQUEST_TIMEOUT."`
}

// AdminSettings are for operators.
type AdminSettings struct {
	AdminListen    Address  `env:"ADMIN_LISTEN" example:"127.0.0.1:9797" envDefault:":9797" unit:"addressoff" live:"no" about:"Address for metrics, health checks and administration. off opens no listener."`
	AdminAllow     Prefixes `env:"ADMIN_ALLOW" shown:"none" unit:"prefixes" live:"no" about:"Networks whose clients may read the status page and /config, such as 172.16.0.0/12 for a port that Docker publishes. Clients on loopback always may. Open the page by IP address or as localhost. These clients cannot change anything."`
	AdminTokenFile string   `env:"ADMIN_TOKEN_FILE" shown:"none" unit:"path" live:"no" about:"File with a token of at least 16 bytes. A request with the token (Authorization: Bearer, or as the password in a browser) has the same rights from anywhere as a request from loopback. The file is read for every such request."`
	LogLevel       string   `env:"LOG_LEVEL" envDefault:"info" unit:"word" oneof:"info,warn,error" live:"no" about:"Lowest level of lines that are logged. warn leaves out the start, the end, reloads and good requests."`
	AccessLog      bool     `env:"ACCESS_LOG" example:"true" envDefault:"false" unit:"bool" about:"Log one line per request: route, method, host, path without query, status, body bytes, duration, attempts with address and cause, user agent, request ID, trace ID and outcome. Failed requests are logged at warn."`
}

// EndpointSettings are where requests arrive and where they are sent.
type EndpointSettings struct {
	Listen       Address          `env:"LISTEN" example:":8000" unit:"address" inbound:":8080" outbound:"127.0.0.1:8080" shown:"; for a route the main one" live:"no" about:"Address on which clients are accepted. For a route: requests accepted on this address, which is opened for the route."`
	Upstream     Upstream         `env:"UPSTREAM" example:"http://app:3000" unit:"upstream" shown:"none, must be set" about:"Where requests are sent. If a name has several addresses, all of them are endpoints. Several addresses or names, separated by commas, form one upstream. A path, as in http://app:80/v2, is put before the path of every request."`
	UpstreamHost forward.HostRule `env:"UPSTREAM_HOST" envDefault:"auto" unit:"host" about:"Host header that is sent. preserve: the client's. upstream: the upstream's; with several upstreams, the host of the chosen one. auto: the upstream's if the client named retryproxy or loopback, else the client's. Any other value is sent as it is, and is the server name (SNI) that an https upstream gets and must have in its certificate."`
	UpstreamCA   string           `env:"UPSTREAM_CA" shown:"the system's" unit:"path" about:"PEM file with the authorities for the certificate of an https upstream."`
	UpstreamCert string           `env:"UPSTREAM_CERT" shown:"none" unit:"path" about:"PEM file with the client certificate for an https upstream, and its chain."`
	UpstreamKey  string           `env:"UPSTREAM_KEY" shown:"in the file of UPSTREAM_CERT, or beside it: tls.key for tls.crt" unit:"path" about:"PEM file with the key of UPSTREAM_CERT."`
	Balance      Balance          `env:"BALANCE" envDefault:"least-requests" unit:"balance" about:"Which endpoint gets a request, if the upstream has several. least-requests: two are chosen at random, and the one with fewer requests in flight gets it. round-robin: one after the other. hash:Name: requests with the same value of that header go to the same endpoint, as long as it exists; requests without the header use least-requests. A retry goes to another endpoint in any case. After 5 consecutive failures (no connection, reset, ATTEMPT_TIMEOUT, 502, 503, 504) an endpoint is ejected for 30 s, the nth time n times as long, up to 5 minutes; at most half are ejected at once."`
	HealthPath   HealthPath       `env:"HEALTH_PATH" envDefault:"off" unit:"probepath" about:"Path of health checks with GET. The path is sent unchanged, without the path of UPSTREAM. Any status from 200 to 499 except 429 is healthy. While the circuit breaker is open, a healthy response closes it. If the upstream has several endpoints, each is also checked every 10 s: after 3 failed checks in a row it gets no requests until 2 have passed. If more than half of the endpoints are ejected or unhealthy, all are used. off: the circuit breaker and the endpoints are judged by connections and requests only; a waiting request is then the probe, and if it is slow, the others wait for it."`
}

// RetrySettings are what is retried, and how often.
type RetrySettings struct {
	Profile          string                `env:"PROFILE" example:"llm" envDefault:"interactive" unit:"word" oneof:"interactive,batch,llm" about:"Set of defaults. batch: up to 8 retries within 180 s with additive backoff, for clients that can wait. llm: for the API of a language model. POST is retried after 429, 503 and 529, but never after a failure that may have been billed. Slow generations are not given up. Streams are retried until their first content."`
	RetryOn          policy.RetryOn        `env:"RETRY_ON" example:"500-504,429,connect-failure" envDefault:"5xx,429,connect-failure,reset,attempt-timeout" unit:"retryon" about:"Failures that are retried. 5xx is without 501, 505 and 511, gateway-error is 502-504. rate-limited is 429, and a 403 that has Retry-After or reports an exhausted rate limit, as GitHub sends it. grpc- and a gRPC status, such as grpc-unavailable, applies to every method."`
	MaxRetries       int                   `env:"MAX_RETRIES" example:"2" envDefault:"3" batch:"8" llm:"8" unit:"count" min:"0" max:"100" about:"Maximum number of retries of one request. Not counted: the first attempt, probes of an open circuit breaker, retries of what was certainly not processed. 0 turns retries off."`
	RetryMethods     RetryMethods          `env:"RETRY_METHODS" envDefault:"GET,HEAD,OPTIONS,TRACE,PUT,DELETE" unit:"methodset" about:"Methods that may be retried after they were sent (RFC 9110 section 9.2.2). A request with an Idempotency-Key header may be retried whatever its method. any: every method, POST and PATCH included; the upstream may then do the work twice. any-with-key: every method, and a request without an Idempotency-Key gets one, the same for all attempts. Use it only if the upstream honours the key."`
	RetryRejected    status.Set            `env:"RETRY_REJECTED" envDefault:"429" llm:"429,503,529" unit:"statusset" about:"Statuses of RETRY_ON that mean that the upstream did not do the work. They are retried for every method, POST and PATCH included. A rate limiter sends 429 before the work begins. If an API means the same by 503 and 529, set 429,503,529."`
	FatalErrorCodes  ErrorCodes            `env:"FATAL_ERROR_CODES" shown:"none besides the usual ones" unit:"errorcodes" about:"Error codes in the JSON body of a failed response that end retries, because the account is used up and no wait helps. These codes are added to those in docs/reference/retry-after.md, such as insufficient_quota; !code removes one. An entry with a space matches a text in the error message. none: no code ends retries."`
	LayeredRetries   policy.LayeredRetries `env:"LAYERED_RETRIES" envDefault:"halve" unit:"word" oneof:"allow,halve,deny" about:"How many retries a request gets if it is itself a retry of another proxy. allow: all. halve: half. deny: none."`
	RetryBufferBytes Size                  `env:"RETRY_BUFFER_BYTES" envDefault:"1MiB" shown:"1MiB, or RETRY_BUFFER_TOTAL_BYTES when that is less" llm:"16MiB" unit:"size" max:"64GiB" about:"Maximum size of a request body that is kept for retries. A request with a larger body is sent once. Of a failed response, at most 64 KiB are kept during a retry; if it is larger, the client gets it and there is no retry."`
	HedgeAfter       hedge.After           `env:"HEDGE_AFTER" envDefault:"off" unit:"hedge" about:"Hedging: if there is no response after this time, a second attempt is sent beside the first. The first good response is used. Only requests that may be retried are hedged. p95: the 95th percentile of response times, once 200 are known (p99: 1000). A hedge counts against MAX_RETRIES and the retry budget, which bounds the added load."`
}

// BackoffSettings are how long to wait before a retry.
type BackoffSettings struct {
	Backoff              Backoff       `env:"BACKOFF" envDefault:"full-jitter" batch:"additive" llm:"additive" unit:"strategy" about:"Backoff strategy: how the wait before a retry is chosen. Options of the strategy follow it, each after a colon, as in 'retryproxyctl plan --backoff'. Set base and max here, or in BACKOFF_BASE and BACKOFF_MAX."`
	BackoffBase          time.Duration `env:"BACKOFF_BASE" example:"250ms" shown:"the strategy's own, 100ms for full-jitter" unit:"duration" min:"1us" about:"First wait, before jitter."`
	BackoffMax           time.Duration `env:"BACKOFF_MAX" shown:"the strategy's own, 32s for full-jitter" unit:"duration" min:"1us" about:"Longest wait."`
	BackoffThrottledBase time.Duration `env:"BACKOFF_THROTTLED_BASE" envDefault:"1s" shown:"1s, or BACKOFF_MAX when that is shorter" unit:"duration" min:"1us" about:"First wait after a 429, or another status of RETRY_REJECTED, without Retry-After."`
}

// BudgetSettings limit the retries of all requests to an upstream.
type BudgetSettings struct {
	BudgetRatio        Ratio   `env:"BUDGET_RATIO" envDefault:"0.2" llm:"1" unit:"ratio" max:"10" about:"Retry budget: retries allowed per request to the same upstream, over 10 seconds. If retryproxy is outbound, a retry that finds the budget empty waits for a token that comes within REQUEST_TIMEOUT, and a request's first wait of a second or more that the upstream asks for costs no token. With SHARED the budget covers all processes of the scope. off: no budget."`
	BudgetMinPerSecond float64 `env:"BUDGET_MIN_PER_SECOND" envDefault:"1" unit:"number" min:"0" max:"10000" about:"Retries per second that are allowed even with few requests."`
	BudgetBurst        int     `env:"BUDGET_BURST" envDefault:"10" unit:"count" min:"1" max:"1000000" about:"Retries that a quiet upstream can save up."`
}

// TimeoutSettings limit the time of requests, attempts and pauses.
type TimeoutSettings struct {
	RequestTimeout      time.Duration `env:"REQUEST_TIMEOUT" example:"10s" envDefault:"30s" batch:"180s" llm:"10m" unit:"duration" max:"24h" about:"Maximum time of all attempts and waits, from the end of the request to the headers of the response. 0: no limit. A client may send an earlier deadline in x-request-timeout (seconds, or a duration), x-envoy-expected-rq-timeout-ms, grpc-timeout, x-stainless-timeout or x-stainless-read-timeout. The upstream gets the time left in the same header, but x-stainless headers are forwarded unchanged. For a gRPC call only its own timeout applies, because the call may be a stream."`
	AttemptTimeout      AutoDuration  `env:"ATTEMPT_TIMEOUT" example:"2s" envDefault:"auto" llm:"0s" unit:"autoduration" max:"24h" about:"Maximum time of an attempt that is not the last. The last attempt has all the time that is left, unless the word hard follows, as in 2s hard. 0: no limit. auto: no attempt is given up while it may still get a response. Instead, if the upstream has several endpoints and the request may be retried, a second attempt goes to another endpoint after the 99th percentile of response times, at least 10s. This attempt counts as a retry, and is not sent with RETRY_ON=none. The first good response is used."`
	FirstContentTimeout time.Duration `env:"FIRST_CONTENT_TIMEOUT" envDefault:"0s" llm:"60s" unit:"duration" max:"24h" about:"How long an event stream (text/event-stream) is held back, until its first event with content. A comment or ping that arrives later than 10 s is passed on at once, with what was held back. The time begins when the request was sent, and is at most half of the time that the client waits. If the stream has an error or is cut off before its content, the attempt has failed and may be retried. A stream that is only silent is relayed. 0: event streams are relayed from their first byte."`
	BodyIdleTimeout     time.Duration `env:"BODY_IDLE_TIMEOUT" envDefault:"60s" llm:"5m" unit:"duration" min:"100ms" about:"Longest pause within a request or response body."`
}

// BreakerSettings protect an upstream, and determine what happens to clients in the meantime.
type BreakerSettings struct {
	Breaker          string           `env:"BREAKER" envDefault:"queue" unit:"word" oneof:"queue,fail-fast,off" about:"What happens to requests while the circuit breaker of their upstream is open. It opens when connections fail, the upstream is silent, or nearly all responses are 502, 503 or 504. queue: requests wait for up to QUEUE_TIMEOUT. fail-fast: they are answered with 503 and Retry-After at once. off: there is no circuit breaker, and no endpoint is ejected; the concurrency limit still holds requests back, unless CONCURRENCY_LIMIT=off too."`
	BreakerOn        BreakerOn        `env:"BREAKER_ON" envDefault:"auto" unit:"breakeron" about:"Failures that are evidence for the circuit breaker, in words of RETRY_ON. If the list names none of connect-failure, reset and attempt-timeout, these three count too; otherwise only those that it names. auto: 502, 503, 504 and these three, and 500 if many URLs and clients get nothing else."`
	BreakerAfter     BreakerAfter     `env:"BREAKER_AFTER" envDefault:"auto" unit:"breakerafter" about:"Consecutive failures that open the circuit breaker, of any URL. With 1, any failure pauses everything. auto: nearly all attempts fail for as long as good responses would usually have come, and one URL that fails does not stop others. In both cases an upstream that is silent for far longer than usual opens it."`
	BreakerBackoff   BreakerBackoff   `env:"BREAKER_BACKOFF" envDefault:"auto" unit:"breakerbackoff" about:"Backoff strategy for the time between probes while the circuit breaker is open. The time grows with each failed probe until a success resets it, and is at least 1ms. auto: 25ms to 150ms after connections that were refused or lost, 100ms to 500ms after others that failed, 100ms to 250ms after responses, 500ms to 5s in a silence, doubled each time, with jitter."`
	QueueTimeout     time.Duration    `env:"QUEUE_TIMEOUT" example:"5s" inbound:"20s" outbound:"10s" batch:"180s" llm:"60s" unit:"duration" min:"1ms" max:"1h" about:"Longest time that a request is queued while the circuit breaker is open, within REQUEST_TIMEOUT."`
	QueueMax         int              `env:"QUEUE_MAX" envDefault:"4096" unit:"count" min:"1" max:"1000000" about:"Maximum number of requests queued for one upstream. When the queue is full, the request that has waited longest is answered with 503."`
	QueueOrder       string           `env:"QUEUE_ORDER" envDefault:"newest" unit:"word" oneof:"newest,oldest" about:"Which queued request is served first. newest: the latest, which has the most time left. oldest: in the order in which requests arrived; a request that was sent and failed gets its former place."`
	ConcurrencyLimit ConcurrencyLimit `env:"CONCURRENCY_LIMIT" envDefault:"adaptive" llm:"off" unit:"limit" about:"Maximum number of requests in flight to one upstream. adaptive: the limit is learned, and binds only while the upstream is overloaded. A number: a fixed limit. An attempt that timed out, or whose client left, is not counted, except with BREAKER=off. Requests whose body is still arriving take at most half of the number, rounded up. off: no limit."`
	Fallback         Fallback         `env:"FALLBACK" envDefault:"none" unit:"fallback" about:"What responds if all attempts fail: a fixed status code with a body, another upstream, or with route:NAME the upstream of another route, with its certificates and headers, such as another API key. Up to 4 of them, separated by commas, are asked in turn; a fixed response is the last. Each upstream gets one attempt, and only if the request can be sent again. A route that is only a fallback needs no matcher."`
}

// RateLimitSettings are for an upstream that limits the rate of requests.
type RateLimitSettings struct {
	RateLimit         RateLimit      `env:"RATE_LIMIT" envDefault:"off" unit:"ratelimit" about:"Maximum rate of attempts to the upstream, retries and hedges included, spread evenly. With SHARED the rate covers all processes of the scope. Only 98.5 % of the rate is used, because an upstream may count a little differently and answer the rest with 429. auto: the limits of requests and tokens are learnt from the headers of responses (docs/reference/llm.md)."`
	RateLimitKey      RateLimitKey   `env:"RATE_LIMIT_KEY" envDefault:"upstream" unit:"ratelimitkey" about:"What RATE_LIMIT applies to. upstream: all requests to the upstream together. route: those of the route. header:Name: each value of that header has its own limit, and all requests without the header share one. json:model: so has each model that the path or the first 64 KiB of a JSON body names. Except with route, routes to the same upstream share the limit if their RATE_LIMIT and RATE_LIMIT_KEY are equal. Up to 4096 values have their own limit; the rest share one."`
	TokenLimit        ratelimit.Rate `env:"TOKEN_LIMIT" envDefault:"off" unit:"tokenlimit" about:"Maximum number of tokens of a language model's API, for each key of RATE_LIMIT_KEY. As at the API, the whole limit may be used at once and is renewed evenly. A request counts as its length divided by 4, 1600 tokens for base64 data, and the output that it allows, until its response reports the tokens used."`
	RateLimitWait     time.Duration  `env:"RATE_LIMIT_WAIT" envDefault:"1s" llm:"1m" unit:"duration" max:"1h" about:"Longest time that a request waits for RATE_LIMIT, within REQUEST_TIMEOUT. A request that would wait longer is answered with 429 and Retry-After at once. 0s: no request waits, except up to 150ms for a lease with SHARED."`
	RateLimitPauseKey PauseKey       `env:"RATE_LIMIT_PAUSE_KEY" envDefault:"none" unit:"pausekey" about:"Which requests share the pause that a 429 asks for. none: each request waits alone. route: all requests of the route. header:Name: those with the same value of that header. json:model: those with the same model in the path or a JSON body. A request without enough time for the pause is not sent, but answered with 429 and Retry-After."`
	RateLimitPauseMax time.Duration  `env:"RATE_LIMIT_PAUSE_MAX" envDefault:"1m" batch:"3m" llm:"2m" unit:"duration" min:"1ms" max:"24h" about:"Longest wait that an upstream may ask for. A response that asks for a longer one is passed to the client at once, and its pause is not shared."`
}

// HeaderSettings change headers of requests and responses.
type HeaderSettings struct {
	RequestHeadersSet     HeaderFields `env:"REQUEST_HEADERS_SET" shown:"none" unit:"headers" about:"Headers set in requests to the upstream, in place of the client's of the same name, such as X-Env: prod. A comma begins the next header if a name and a colon follow it."`
	RequestHeadersRemove  HeaderList   `env:"REQUEST_HEADERS_REMOVE" shown:"none" unit:"headernames" about:"Headers of clients that are not sent to the upstream."`
	RequestHeadersFile    string       `env:"REQUEST_HEADERS_FILE" shown:"none" unit:"path" about:"File with secret headers for the upstream, one per line, such as Authorization: Bearer ... It is read again when it changes and never logged or shown. FALLBACK and a route with its own UPSTREAM do not get these headers."`
	ResponseHeadersSet    HeaderFields `env:"RESPONSE_HEADERS_SET" shown:"none" unit:"headers" about:"Headers set in all final responses, in place of the upstream's of the same name."`
	ResponseHeadersRemove HeaderList   `env:"RESPONSE_HEADERS_REMOVE" shown:"none" unit:"headernames" about:"Headers that clients do not get, from the upstream or from retryproxy, such as X-Retryproxy-Attempts and X-Retryproxy-Reason. A client that is itself a retryproxy gets these two in any case."`
}

// TrialSettings try out rules.
type TrialSettings struct {
	DryRun bool `env:"DRY_RUN" envDefault:"false" unit:"bool" about:"true: send every request once, return its response unchanged, and only count the retries that would have been made, by reason. Circuit breaker, limits, pauses and fallback are off. Timeouts still apply."`
}

// MatcherSettings select the requests of a route.
type MatcherSettings struct {
	Host        string  `env:"HOST" shown:"any" unit:"hostpattern" about:"Requests for this host, or for one of several. *.example.com matches all names below example.com."`
	Path        string  `env:"PATH" shown:"any" unit:"pathpattern" about:"Requests for this path, or for one of several. /search/* matches /search and everything below it, /users/*/orders any one name between."`
	Methods     Methods `env:"METHODS" shown:"any" unit:"methods" about:"Requests with one of these methods."`
	Header      string  `env:"HEADER" shown:"any" unit:"header" about:"Requests with this header, and with this value if one is given: Name or Name=value."`
	Model       string  `env:"MODEL" shown:"any" unit:"models" about:"Requests whose path or JSON body names this model, or one of several. For this, the first 64 KiB of bodies are read. A route cannot have both MODEL and HEADER."`
	StripPrefix string  `env:"STRIP_PREFIX" shown:"none" unit:"pathprefix" about:"Prefix that is removed from the path before the request is sent upstream. The route's PATH must begin with it."`
}

// Route is a named route with all its settings.
type Route struct {
	Name string
	Matcher
	Shared

	own    map[string]string // key in Shared or Matcher, for the default route in Global too -> variable that set it
	parent *Route            // its variables apply if there is no own one; nil for the default route
}

// Settings is the result of Load. It does not change afterwards and is safe for concurrent
// reads.
type Settings struct {
	Global
	Default Route   // for requests that match no route; its Shared are the global settings
	Routes  []Route // in the order of RETRYPROXY_ROUTES

	from origins // of the variables that files set
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
func (s *Settings) Variable(key string) string { return s.Default.own[key] }

// All returns the default route followed by the named ones.
func (s *Settings) All() []*Route {
	all := make([]*Route, 0, len(s.Routes)+1)
	all = append(all, &s.Default)
	for i := range s.Routes {
		all = append(all, &s.Routes[i])
	}
	return all
}

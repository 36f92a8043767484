// Package settings turns RETRYPROXY_* variables into checked values.
//
// Start with Load: it reads the environment and the file that
// RETRYPROXY_ENV_FILE names, and returns a Settings together with every
// problem found, never only the first. The structs Global, Shared and Matcher
// in this file are the only list of settings: names, defaults, limits and
// descriptions are their tags, and the parser, the search for misspelt names,
// the effective configuration and docs/settings.md all read them from there.
// To add a setting, add a field.
//
// What a retry rule, a backoff, a route's pattern or an upstream may be is
// asked of the packages that use them (policy, proxy/route, proxy/upstream), so
// that there is one answer. Certificates and everything else outside are read
// later, in package assemble.
package settings

import (
	"time"

	"github.com/retryproxy/retryproxy/fleet/engine"
)

// Prefix begins the name of every variable of ours.
const Prefix = "RETRYPROXY_"

// The tags of a field:
//
//	env         the name without Prefix
//	envDefault  the default in the form a user would write it; where there is none, shown tells the reader what applies
//	shown       the default as the documentation tells it, when it depends on other settings
//	batch       the default under RETRYPROXY_PROFILE=batch
//	route       the name after RETRYPROXY_ROUTE_<NAME>_ where it differs from env
//	group       heading in the documentation, for this field and those that follow
//	unit        what kind of value it is: a key of the table units
//	min, max    limits, both included, written like the value
//	oneof       the allowed words
//	live        "no" when a reload cannot change it
//	about       one sentence, without default and unit: those are appended

// Global holds the settings of the whole process.
type Global struct {
	Listen            Address    `env:"LISTEN" group:"Where it stands" unit:"address" shown:":8080 inbound, 127.0.0.1:8080 outbound" live:"no" about:"Address on which callers are accepted."`
	TLSCert           string     `env:"TLS_CERT" shown:"none" unit:"path" about:"PEM file of the certificate, with its chain, shown to callers; with it every TCP listener for callers speaks TLS only, and a unix socket stays plain."`
	TLSKey            string     `env:"TLS_KEY" shown:"none" unit:"path" about:"PEM file of that certificate's key."`
	TLSClientCA       string     `env:"TLS_CLIENT_CA" shown:"none" unit:"path" about:"PEM file of the authorities that callers must have a certificate from; without it none is asked for."`
	Side              string     `env:"SIDE" envDefault:"auto" unit:"word" oneof:"auto,inbound,outbound" about:"Whether retryproxy stands before the application (inbound) or before a remote service (outbound); auto says inbound when the upstream is loopback or a unix socket."`
	AdminListen       Address    `env:"ADMIN_LISTEN" envDefault:":9797" unit:"addressoff" live:"no" about:"Address of metrics, health and administration; off opens none."`
	TrustedProxies    Prefixes   `env:"TRUSTED_PROXIES" shown:"none" unit:"prefixes" about:"Peers whose X-Forwarded-*, Forwarded and X-Retryproxy-* request fields are believed; once set, those fields from anyone else are dropped."`
	ProxyProtocolFrom Prefixes   `env:"PROXY_PROTOCOL_FROM" shown:"none" unit:"prefixes" about:"Peers, load balancers say, whose connections over TCP have to begin with a header of the PROXY protocol, version 1 or 2, and are then taken for the caller's that it names; one without is closed. From anyone else such a header is refused."`
	ForwardProxy      bool       `env:"FORWARD_PROXY" envDefault:"false" unit:"bool" about:"Whether requests in absolute form, as clients with http_proxy set send them, are served only where they name the upstream of their route or match its HOST, port included, and are refused otherwise; CONNECT always is. No other address is ever dialled, either way."`
	Routes            RouteNames `env:"ROUTES" shown:"none" unit:"routes" about:"Names of the routes; each needs at least one matcher, and what no route matches is the route default."`
	EnvFile           string     `env:"ENV_FILE" shown:"none" unit:"path" live:"no" about:"File of further settings, one NAME=VALUE a line, read again on SIGHUP and when it changes."`
	Strict            bool       `env:"STRICT" envDefault:"true" unit:"bool" about:"Whether an unknown RETRYPROXY_* name stops the start; false makes it a warning."`

	MaxConnections    AutoCount     `env:"MAX_CONNECTIONS" envDefault:"auto" group:"Limits" unit:"autocount" max:"10000000" live:"no" about:"Clients connected at once. Beyond, the longest idle one is disconnected for the next, then one that takes nothing of its response, and if there is neither, accepting pauses; auto takes half of what the descriptor limit has beyond 64, a quarter of a limit below 128, since each may need a connection to the upstream; 0 means no limit. Where there is a memory limit (the cgroup's or GOMEMLIMIT), clients are bounded by it too, about 1000 busy ones for 128 MiB."`
	MaxStreams        int           `env:"MAX_CONCURRENT_STREAMS" envDefault:"128" unit:"count" min:"0" max:"100000" about:"Requests that an HTTP/2 caller may have under way on one connection; those of all clients together are bounded by MAX_CONNECTIONS and the memory limit, of which one connection has half at most; a request that gets no slot within a second is answered 503; 0 speaks no HTTP/2 with callers."`
	MaxHeadBytes      Size          `env:"MAX_HEAD_BYTES" envDefault:"64KiB" unit:"size" min:"1KiB" max:"16MiB" about:"Longest head of a request or response; a longer request is refused with 431."`
	MaxFields         int           `env:"MAX_FIELDS" envDefault:"100" unit:"count" min:"1" max:"10000" about:"Most fields in a head; a request with more is refused with 431."`
	ReadHeadTimeout   time.Duration `env:"READ_HEAD_TIMEOUT" envDefault:"10s" unit:"duration" min:"10ms" about:"Time for a request's head from its first byte to its last."`
	CallerIdleTimeout time.Duration `env:"CALLER_IDLE_TIMEOUT" envDefault:"620s" unit:"duration" min:"1s" about:"How long a caller's connection is kept without a request; longer than cloud load balancers keep theirs, so that they close first."`
	WriteTimeout      time.Duration `env:"WRITE_TIMEOUT" envDefault:"60s" unit:"duration" min:"100ms" about:"A caller that reads nothing of its response for so long is cut off."`
	TunnelIdleTimeout time.Duration `env:"TUNNEL_IDLE_TIMEOUT" envDefault:"1h" unit:"duration" min:"1s" about:"An upgraded connection (WebSocket, over HTTP/2 too) without a byte in either direction for so long is closed."`
	MinBodyRate       Size          `env:"MIN_BODY_RATE" envDefault:"256" unit:"rate" max:"1GiB" about:"Bytes a second that a request's body must average after its first 10 seconds; 0 means no limit."`
	TotalReplayBytes  Size          `env:"TOTAL_REPLAY_BYTES" envDefault:"64MiB" unit:"size" max:"64GiB" live:"no" about:"Memory of the process for request bodies and responses kept in case of a retry; beyond it requests go on but cannot be repeated. Where there is a memory limit, at most a quarter of it."`

	RetryPercent int `env:"RETRY_PERCENT" envDefault:"100" group:"Kill switch" unit:"count" min:"0" max:"100" about:"Percentage of the retries that would be made which are made, over all routes; retryproxy retry-percent changes it in a running process."`

	DrainDelay   time.Duration `env:"DRAIN_DELAY" envDefault:"0s" group:"Ending" unit:"duration" max:"1h" about:"On SIGTERM, how long requests are still taken as usual after readiness has failed, so that load balancers notice."`
	DrainTimeout time.Duration `env:"DRAIN_TIMEOUT" envDefault:"20s" unit:"duration" max:"24h" about:"After the delay, how long running requests may take to end before their connections are cut."`

	SharedEngine       engine.Engine `env:"SHARED" shown:"none" group:"A fleet" unit:"engine" live:"no" about:"Redis or Valkey server through which processes that call the same upstream tell each other of its cool-downs, have one QUOTA and one retry budget together, and probe it by turns while it is down; while it does not answer, each goes on by itself. Not in the default container image."`
	SharedScope        string        `env:"SHARED_SCOPE" envDefault:"default" unit:"token" live:"no" about:"Name for whom to share with: those with the same name on the same engine, for routes of the same name to the same upstream."`
	SharedPasswordFile string        `env:"SHARED_PASSWORD_FILE" shown:"none" unit:"path" live:"no" about:"File with the password for the shared engine, read at every connect."`
	SharedCA           string        `env:"SHARED_CA" shown:"the system's" unit:"path" live:"no" about:"PEM file of the authorities that a rediss engine's certificate is checked against."`
	SharedCert         string        `env:"SHARED_CERT" shown:"none" unit:"path" live:"no" about:"PEM file of the certificate shown to a rediss engine, read at every connect."`
	SharedKey          string        `env:"SHARED_KEY" shown:"none" unit:"path" live:"no" about:"PEM file of that certificate's key."`

	LogLevel           string `env:"LOG_LEVEL" envDefault:"info" group:"Logs and administration" unit:"word" oneof:"debug,info,warn,error" about:"Least severe line that is logged."`
	LogFormat          string `env:"LOG_FORMAT" envDefault:"json" unit:"word" oneof:"json,console" live:"no" about:"Form of the log lines on standard error."`
	AccessLog          bool   `env:"ACCESS_LOG" envDefault:"false" unit:"bool" about:"Whether every request is logged, in one line: route, method, host, path without query, status, bytes of the bodies, duration, attempts with address and cause, user agent, request id, trace id and outcome; one that fails at warn."`
	GaveUpLogPerMinute int    `env:"GAVE_UP_LOG_PER_MINUTE" envDefault:"10" unit:"count" min:"0" max:"1000000" about:"Without the access log: lines a minute and route about requests given up. Further ones are counted in a line of their own at the end of the minute."`
	PProf              bool   `env:"PPROF" envDefault:"false" unit:"bool" live:"no" about:"Whether the admin listener serves Go profiles to loopback."`
}

// Shared holds the settings that a route may have of its own; where it has
// none, the global one of the same name applies.
type Shared struct {
	Upstream           Upstream      `env:"UPSTREAM" group:"Upstream" unit:"upstream" shown:"none, must be set" about:"Where requests are sent: an address, a name, of which all addresses are used, or several with commas between, which are one upstream."`
	UpstreamCA         string        `env:"UPSTREAM_CA" shown:"the system's" unit:"path" about:"PEM file of the authorities that an https upstream's certificate is checked against."`
	UpstreamCert       string        `env:"UPSTREAM_CERT" shown:"none" unit:"path" about:"PEM file of the certificate shown to an https upstream."`
	UpstreamKey        string        `env:"UPSTREAM_KEY" shown:"none" unit:"path" about:"PEM file of that certificate's key."`
	UpstreamServerName string        `env:"UPSTREAM_SERVER_NAME" shown:"the upstream's host" unit:"name" about:"Name asked for (SNI) and checked in an https upstream's certificate."`
	Host               HostRule      `env:"HOST" route:"UPSTREAM_HOST" envDefault:"auto" unit:"host" about:"Host field sent: preserve keeps the caller's, upstream sends the upstream's, auto sends the upstream's when the caller named retryproxy or loopback and else keeps it; any other value is sent as it is."`
	DialTimeout        time.Duration `env:"DIAL_TIMEOUT" envDefault:"3s" shown:"3s, or ATTEMPT_TIMEOUT when that is shorter" unit:"duration" min:"1ms" max:"10m" about:"Time to connect to the upstream, TLS included."`
	EjectAfter         int           `env:"EJECT_AFTER" envDefault:"5" unit:"count" min:"0" max:"1000000" about:"Of an upstream with several addresses: failures of one in a row (no connection, reset, ATTEMPT_TIMEOUT, 502, 503, 504) after which it is left out for a while, unless more than half would be; 0 leaves none out."`
	EjectFor           time.Duration `env:"EJECT_FOR" envDefault:"30s" unit:"duration" min:"100ms" max:"1h" about:"How long an address is left out the first time; the nth time n times as long, up to ten times."`

	Forwarded       bool   `env:"FORWARDED" envDefault:"false" group:"What is forwarded" unit:"bool" about:"Whether a Forwarded field (RFC 7239) is added beside X-Forwarded-*."`
	Via             string `env:"VIA" shown:"none" unit:"token" about:"Pseudonym with which a Via field is added to requests and responses; without it none is added, as some servers stop compressing when they see one."`
	IdempotencyKey  string `env:"IDEMPOTENCY_KEY" envDefault:"accept" unit:"word" oneof:"accept,generate" about:"accept: a request that carries an Idempotency-Key may be repeated whatever its method; generate: also give one to requests without, the same over all attempts (only for upstreams that obey it)."`
	ResponseHeaders bool   `env:"RESPONSE_HEADERS" envDefault:"true" unit:"bool" about:"Whether responses carry X-Retryproxy-Attempts and X-Retryproxy-Reason."`
	MaxBodyBytes    Size   `env:"MAX_BODY_BYTES" envDefault:"0" unit:"size" about:"Largest request body, a larger one is refused with 413; 0 means no limit."`

	Profile       string        `env:"PROFILE" envDefault:"interactive" group:"Retries" unit:"word" oneof:"interactive,batch" about:"Set of defaults: batch means up to 8 retries within 180 s with additive backoff, for callers that can wait."`
	RetryOn       RetryOn       `env:"RETRY_ON" envDefault:"5xx,429,connect-failure,reset,attempt-timeout" unit:"retryon" about:"What is a failure worth repeating: codes, ranges such as 500-504, 5xx (without 501, 505, 511), gateway-error (502-504), connect-failure, reset, attempt-timeout, grpc- and a gRPC status (grpc-unavailable; then also for methods that are not repeated otherwise), retriable-header:Name[=value], !code to leave one out, or none."`
	MaxRetries    int           `env:"MAX_RETRIES" envDefault:"3" batch:"8" unit:"count" min:"0" max:"100" about:"Most retries of one request, the first attempt not counted; 0 turns retries off."`
	RetryWindow   time.Duration `env:"RETRY_WINDOW" envDefault:"0s" unit:"duration" about:"No retry begins later than this after the first attempt began; 0 means no such bound."`
	RetryMethods  MethodSet     `env:"RETRY_METHODS" envDefault:"GET,HEAD,OPTIONS,TRACE,PUT,DELETE" unit:"methodset" about:"Methods that may be repeated after they were sent (RFC 9110 section 9.2.2)."`
	RetryUnsafe   bool          `env:"RETRY_UNSAFE" envDefault:"false" unit:"bool" about:"Whether requests of every method, POST and PATCH included, are repeated after they were sent, though the upstream may then act twice."`
	RetryRejected Rejected      `env:"RETRY_REJECTED" envDefault:"429" unit:"statusset" about:"Statuses of RETRY_ON by which the upstream says that it did not do the work: retried for every method, POST and PATCH included. A rate limiter answers 429 before the work begins; APIs that mean the same by 503 and 529 are 429,503,529."`
	Nested        string        `env:"NESTED" envDefault:"halve" unit:"word" oneof:"allow,halve,deny" about:"How many retries a request gets that is itself a repeat by a proxy before us: all, half of them or none."`

	Backoff              string        `env:"BACKOFF" envDefault:"full-jitter" batch:"additive" group:"Backoff" unit:"strategy" about:"How the wait before a retry is chosen."`
	BackoffBase          time.Duration `env:"BACKOFF_BASE" shown:"the strategy's own, 100ms for full-jitter" unit:"duration" min:"1us" about:"First wait, before jitter."`
	BackoffFactor        float64       `env:"BACKOFF_FACTOR" shown:"the strategy's own, 2 for full-jitter" unit:"number" min:"1" max:"1000" about:"By how much each wait is longer than the one before."`
	BackoffMax           time.Duration `env:"BACKOFF_MAX" shown:"the strategy's own, 32s for full-jitter" unit:"duration" min:"1us" about:"Longest wait."`
	BackoffJitter        float64       `env:"BACKOFF_JITTER" shown:"0.1" unit:"number" min:"0.001" max:"1" about:"Of the strategy normal: standard deviation of a wait as a fraction of it."`
	BackoffSpread        time.Duration `env:"BACKOFF_SPREAD" shown:"1s" unit:"duration" min:"1us" about:"Of the strategy additive: longest random addition to a wait."`
	BackoffRatio         float64       `env:"BACKOFF_RATIO" shown:"1" unit:"number" min:"0.001" max:"1000" about:"Of the strategy ratio: wanted ratio of a wait to the time that has passed before it."`
	BackoffSlots         int           `env:"BACKOFF_SLOTS" shown:"10" unit:"count" min:"1" max:"32" about:"Of the strategy slots: ceiling, at which it begins again or stays."`
	BackoffStay          bool          `env:"BACKOFF_STAY" shown:"false" unit:"bool" about:"Of the strategy slots: whether it stays at its ceiling instead of beginning again."`
	BackoffExtra         time.Duration `env:"BACKOFF_EXTRA" shown:"0s" unit:"duration" about:"Further random wait of up to so much after that of any strategy, whatever its cap: for those whose waits become equal there."`
	BackoffThrottledBase time.Duration `env:"BACKOFF_THROTTLED_BASE" envDefault:"1s" shown:"1s, or BACKOFF_MAX when that is shorter" unit:"duration" min:"1us" about:"First wait after a 429 without Retry-After."`

	BudgetRatio        Ratio   `env:"BUDGET_RATIO" envDefault:"0.2" group:"Budget" unit:"ratio" max:"10" about:"Retries allowed for each request to the same upstream, over 10 seconds, with SHARED by all processes of the scope together; off sets no budget."`
	BudgetMinPerSecond float64 `env:"BUDGET_MIN_PER_SECOND" envDefault:"1" unit:"number" min:"0" max:"10000" about:"Retries a second allowed however few requests there are."`
	BudgetBurst        int     `env:"BUDGET_BURST" envDefault:"10" unit:"count" min:"1" max:"1000000" about:"Retries that can be saved up by a quiet upstream."`

	Outage         string         `env:"OUTAGE" envDefault:"hold" group:"Outages" unit:"word" oneof:"hold,shed,off" about:"What becomes of requests while the upstream is down: hold lets them wait for it up to HOLD_TIMEOUT, shed answers 503 with Retry-After at once, off lets every request find out for itself."`
	HoldTimeout    time.Duration  `env:"HOLD_TIMEOUT" shown:"20s inbound, 10s outbound" unit:"duration" min:"1ms" max:"1h" about:"The longest that a request waits for an upstream that is down, within REQUEST_TIMEOUT."`
	HoldMax        int            `env:"HOLD_MAX" envDefault:"4096" unit:"count" min:"1" max:"1000000" about:"Requests that wait at once for one upstream; beyond, the one that waited longest is answered 503."`
	QueueOrder     string         `env:"QUEUE_ORDER" envDefault:"newest" unit:"word" oneof:"newest,oldest" about:"Which of the requests that wait is served first: newest, who came last and has most of its patience left; oldest, in the order in which they came. When the queue is full, the one that waited longest is dropped, either way."`
	BreakerOn      BreakerOn      `env:"BREAKER_ON" envDefault:"502,503,504" unit:"breakeron" about:"Statuses by which the upstream as a whole is judged to fail, beside connections that fail and silence; 500 may be one of them where it means the same."`
	BreakerBackoff BreakerBackoff `env:"BREAKER_BACKOFF" envDefault:"auto" unit:"breakerbackoff" about:"How the wait before the next probe of an upstream that is down is chosen, from the number of probes that failed since the last success; auto waits 25ms to 150ms after refused connections and 100ms to 500ms after other failures."`
	ProbePath      ProbePath      `env:"PROBE_PATH" envDefault:"off" unit:"probepath" about:"Path that an upstream is asked for by GET while it is down, to learn when it is back: any answer from 200 to 499 but 429 says so. With off it is probed by connecting, or by one of the requests that wait."`
	Limit          Limit          `env:"LIMIT" envDefault:"adaptive" unit:"limit" about:"Requests under way at once to one upstream: adaptive learns what it bears and binds only when it is overloaded; a number is a fixed limit; off sets none."`
	Fallback       Fallback       `env:"FALLBACK" envDefault:"none" unit:"fallback" about:"What answers when all else failed, no answer or a failing one: another upstream, asked once where the request is whole and may be sent again, or an answer of ours, a status code and a body."`
	Throttle       string         `env:"THROTTLE" envDefault:"off" unit:"word" oneof:"on,off" about:"Whether requests are answered 503 without being sent while the upstream rejects nearly all of them (429, 502, 503, 504 or no answer)."`

	HedgeAfter HedgeAfter `env:"HEDGE_AFTER" envDefault:"off" group:"Hedging" unit:"hedge" about:"How long an answer is waited for before the request is sent a second time beside the first, where it may be repeated; the first good answer is relayed and the other attempt ended. p95: as long as 95 of 100 answers take, as learnt from at least 200 (p99: 1000) of them. A hedge counts as a retry against MAX_RETRIES and the budget, which bounds the load that it adds."`

	CooldownKey CooldownKey   `env:"COOLDOWN_KEY" envDefault:"none" group:"Cool-downs" unit:"cooldownkey" about:"Which requests share the pause that a 429 asks for: none, each pauses for itself; route, all of the route; header:Name, those of the route with the same value in that field. They wait where they have the time and else get 429 with Retry-After at once, without being sent."`
	CooldownMax time.Duration `env:"COOLDOWN_MAX" envDefault:"1m" unit:"duration" min:"1ms" max:"24h" about:"The longest pause that is shared; a longer one is passed to the caller at once and stops nobody else."`

	Quota     QuotaRate     `env:"QUOTA" envDefault:"off" group:"Quota" unit:"quota" about:"How many attempts the upstream may be sent in a time, retries and hedges included, spread evenly; with SHARED by all processes of the scope together. 98.5 % of it is used, since an upstream that counts a little differently answers 429 to the rest."`
	QuotaKey  QuotaKey      `env:"QUOTA_KEY" envDefault:"upstream" unit:"quotakey" about:"Whose QUOTA is: upstream, all requests to the upstream have it together; route, those of the route; header:Name, each value of that field has one of its own, and requests without the field have one together. With upstream and header:Name, routes to one upstream with the same QUOTA and QUOTA_KEY share it. A process remembers 4096 values that are in use; those beyond have one quota together."`
	QuotaWait time.Duration `env:"QUOTA_WAIT" envDefault:"1s" unit:"duration" max:"1h" about:"The longest that a request waits for its turn, within REQUEST_TIMEOUT; one whose turn is not likely to come by then gets 429 with Retry-After at once, without being sent. With 0s nobody waits, but for the 150ms that a lease may take with SHARED."`

	RequestTimeout  time.Duration  `env:"REQUEST_TIMEOUT" envDefault:"30s" batch:"180s" group:"Time and memory" unit:"duration" max:"24h" about:"Time for all attempts and waits, from the request being fully sent to the response's head; 0 means no limit."`
	AttemptTimeout  AutoDuration   `env:"ATTEMPT_TIMEOUT" envDefault:"auto" unit:"autoduration" max:"24h" about:"Time for one attempt while a retry is still possible; the last one has all that is left; 0 means no limit. auto throws no attempt away that may still answer: of an upstream with several endpoints, where the request may be retried, a second attempt goes to another endpoint beside the first after as long as 99 of 100 responses take, 10s at least, and the first good response is relayed; it counts as a retry against MAX_RETRIES and the budget."`
	CallerDeadlines DeadlineFields `env:"CALLER_DEADLINES" envDefault:"x-request-timeout,grpc-timeout,x-envoy-expected-rq-timeout-ms" unit:"deadlines" about:"Request fields in which a caller may say how long it waits: seconds or a duration, gRPC's notation, milliseconds. The request ends then, if REQUEST_TIMEOUT does not end it before, and the upstream is sent the time that is left in the same field; while grpc-timeout is among them, a gRPC call has no other time limit, as it may be a stream."`
	BodyIdleTimeout time.Duration  `env:"BODY_IDLE_TIMEOUT" envDefault:"60s" unit:"duration" min:"100ms" about:"A body, either way, may pause for so long."`
	MaxReplayBytes  Size           `env:"MAX_REPLAY_BYTES" envDefault:"1MiB" shown:"1MiB, or TOTAL_REPLAY_BYTES when that is less" unit:"size" max:"64GiB" about:"Most of one request's body kept in case of a retry; a request with a larger one is sent once."`
	HoldBytes       Size           `env:"HOLD_BYTES" envDefault:"64KiB" shown:"64KiB, or TOTAL_REPLAY_BYTES when that is less" unit:"size" max:"1GiB" about:"Largest failed response kept while a better one is sought; a larger one is given to the caller instead of a retry."`

	Mode  string `env:"MODE" envDefault:"retry" group:"Trying out" unit:"word" oneof:"retry,observe" about:"Whether failures are repeated as the settings say (retry), or every request is sent once, its answer passed on as it came, and the retries that would have been made are only counted, by reason (observe: no gate, limit, cool-down, throttle or fallback either; time limits stay)."`
	Fault Faults `env:"FAULT" envDefault:"off" unit:"fault" about:"Faults made up for attempts instead of asking the upstream, for trying policies out and never for traffic that matters: an answer with a status, a lost connection, or time before the attempt is sent, each with its percentage of attempts; every start, reload and check warns of them. A route with faults shares no gate, limit, budget and connections with routes that have others or none."`
}

// Matcher holds the settings that only a route has: which requests it takes
// and what it cuts from their path.
type Matcher struct {
	Host        string  `env:"HOST" group:"Which requests a route takes" shown:"any" unit:"hostpattern" about:"Requests for this host; *.example.com takes all names below example.com."`
	Path        string  `env:"PATH" shown:"any" unit:"pathpattern" about:"Requests for this path; /search/* takes /search and everything below it."`
	Methods     Methods `env:"METHODS" shown:"any" unit:"methods" about:"Requests with one of these methods."`
	Header      string  `env:"HEADER" shown:"any" unit:"header" about:"Requests with this field, and with this value if one is given: Name or Name=value."`
	Listen      Address `env:"LISTEN" shown:"the main listener" unit:"address" live:"no" about:"Requests accepted on this address, which is opened for the route."`
	StripPrefix string  `env:"STRIP_PREFIX" shown:"none" unit:"pathprefix" about:"Beginning of the path that is not sent to the upstream; the route's PATH has to begin with it."`
}

// Route is a named rule with everything that applies to the requests it takes.
type Route struct {
	Name string
	Matcher
	Shared

	own    map[string]string // key in Shared or Matcher -> variable that set it for this route
	parent *Route            // whose variables apply where there is no own one; nil for the default route
}

// Settings is the outcome of Load. It is not changed afterwards and safe for
// concurrent reads.
type Settings struct {
	Global
	Default Route   // of requests that no route takes; its Shared are the global ones
	Routes  []Route // in the order of RETRYPROXY_ROUTES

	own map[string]string // key in Global -> variable that set it
}

// Variable names what set the key of Shared or Matcher for this route:
// RETRYPROXY_ROUTE_<NAME>_<KEY>, RETRYPROXY_<KEY>, or "" when the default
// applies.
func (r *Route) Variable(key string) string {
	for at := r; at != nil; at = at.parent {
		if name, set := at.own[key]; set {
			return name
		}
	}
	return ""
}

// Blame is the variable to change for a key: the one that set it, else the
// one that would for all routes.
func (r *Route) Blame(key string) string {
	if name := r.Variable(key); name != "" {
		return name
	}
	return Prefix + key
}

// Variable names what set the key of Global; "" when the default applies.
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

package config

import (
	"slices"
	"strings"
)

// hints are for names that users of other proxies may try, separated by spaces.
var hints = []struct{ names, hint string }{
	{"PORT", "the port for requests is in RETRYPROXY_LISTEN=:8080, the upstream's in RETRYPROXY_UPSTREAM=http://localhost:3000"},
	{"LISTEN_PORT", "the port is part of RETRYPROXY_LISTEN=:8080"},
	{"LISTEN_ADDR ADDRESS ADDR BIND BIND_ADDRESS ENTRYPOINT ENTRYPOINTS LISTENER", "the address for requests is RETRYPROXY_LISTEN=:8080"},
	{"METRICS METRICS_PORT METRICS_LISTEN METRICS_ADDR PROMETHEUS STATS STATUS_PORT", "/metrics is served by the admin listener, RETRYPROXY_ADMIN_LISTEN=:9797"},
	{"ADMIN_PORT ADMIN_ADDR ADMIN_ADDRESS ADMIN", "the port is part of RETRYPROXY_ADMIN_LISTEN=:9797"},
	{"TARGET TARGET_URL BACKEND BACKEND_URL UPSTREAM_URL URL PROXY_PASS ORIGIN DESTINATION APP_URL SERVICE_URL UPSTREAM_PORT CLUSTER SERVER", "requests are sent to RETRYPROXY_UPSTREAM=http://localhost:3000"},
	{"BACKENDS UPSTREAMS", "several upstreams are a list: RETRYPROXY_UPSTREAM=http://a:3000,http://b:3000"},
	{"UPSTREAM_SERVER_NAME", "the server name (SNI) is the name in RETRYPROXY_UPSTREAM_HOST, else the upstream's host"},
	{"TIMEOUT UPSTREAM_TIMEOUT READ_TIMEOUT PROXY_READ_TIMEOUT PROXY_SEND_TIMEOUT TIMEOUT_SERVER RESPONSE_TIMEOUT SERVER_TIMEOUT HTTP_TIMEOUT CLIENT_TIMEOUT", "did you mean RETRYPROXY_REQUEST_TIMEOUT (a request with all its retries) or RETRYPROXY_ATTEMPT_TIMEOUT (one attempt)?"},
	{"TOTAL_TIMEOUT RETRY_MAX_TIME MAX_TIME ROUTE_TIMEOUT RETRY_TIMEOUT PROXY_NEXT_UPSTREAM_TIMEOUT DEADLINE", "did you mean RETRYPROXY_REQUEST_TIMEOUT (a request with all its retries)?"},
	{"PER_TRY_TIMEOUT TRY_TIMEOUT PER_ATTEMPT_TIMEOUT RETRY_PER_TRY_TIMEOUT", "did you mean RETRYPROXY_ATTEMPT_TIMEOUT (one attempt)?"},
	{"CONNECT_TIMEOUT DIAL_TIMEOUT PROXY_CONNECT_TIMEOUT TIMEOUT_CONNECT CONNECTION_TIMEOUT", "a connection has 3s, or RETRYPROXY_ATTEMPT_TIMEOUT if that is shorter"},
	{"READ_HEADER_TIMEOUT CLIENT_HEADER_TIMEOUT TIMEOUT_HTTP_REQUEST", "a client has 10s for the headers of a request"},
	{"IDLE_TIMEOUT CLIENT_IDLE_TIMEOUT KEEPALIVE_TIMEOUT KEEP_ALIVE_TIMEOUT TIMEOUT_CLIENT TIMEOUT_HTTP_KEEP_ALIVE KEEPALIVE KEEP_ALIVE", "an idle client is kept for 70m, longer than by every load balancer in front"},
	{"TUNNEL_IDLE_TIMEOUT", "a WebSocket or another upgraded connection may be silent for 1h"},
	{"WRITE_TIMEOUT", "a client that reads nothing of its response for 1m is disconnected"},
	{"MAX_HEADER_BYTES", "headers have at most 64KiB"},
	{"MAX_HEADERS", "a request or response has at most 100 header lines"},
	{"MAX_BODY_SIZE MAX_BODY_BYTES CLIENT_MAX_BODY_SIZE BODY_LIMIT MAX_REQUEST_SIZE", "bodies stream, so their size costs nothing here; the application limits it"},
	{"MAX_CONNECTIONS MAXCONN WORKER_CONNECTIONS MAX_CONNS", "the number of connections follows from the descriptor limit (ulimit -n) and the memory limit"},
	{"MAX_CONCURRENT_STREAMS", "an HTTP/2 client may have 1000 requests in flight on a connection"},
	{"RETRIES NUM_RETRIES RETRY_COUNT RETRY MAX_RETRY RETRY_MAX RETRY_LIMIT MAX_RETRY_COUNT RETRIES_MAX", "did you mean RETRYPROXY_MAX_RETRIES (retries after the first attempt)?"},
	{"MAX_ATTEMPTS ATTEMPTS RETRY_ATTEMPTS MAX_TRIES TRIES PROXY_NEXT_UPSTREAM_TRIES", "did you mean RETRYPROXY_MAX_RETRIES (retries after the first attempt, so one less)?"},
	{"RETRY_STATUS RETRY_CODES RETRY_STATUSES RETRY_STATUS_CODES RETRIABLE_STATUS_CODES RETRYABLE_STATUS_CODES STATUS_CODES PROXY_NEXT_UPSTREAM RETRY_POLICY RETRY_ON_STATUS", "did you mean RETRYPROXY_RETRY_ON=5xx,429,connect-failure,reset?"},
	{"RETRY_DELAY RETRY_INTERVAL RETRY_BACKOFF RETRY_BACK_OFF INITIAL_INTERVAL INITIALINTERVAL BASE_INTERVAL BACKOFF_INITIAL BACKOFF_MIN BACKOFF_DELAY", "did you mean RETRYPROXY_BACKOFF_BASE=100ms?"},
	{"STRATEGY RETRY_STRATEGY BACKOFF_TYPE BACKOFF_POLICY", "did you mean RETRYPROXY_BACKOFF=full-jitter?"},
	{"BACKOFF_FACTOR BACKOFF_MULTIPLIER", "it is an option: RETRYPROXY_BACKOFF=full-jitter:factor=2"},
	{"BACKOFF_JITTER JITTER RETRY_JITTER", "it is an option: RETRYPROXY_BACKOFF=normal:jitter=0.1"},
	{"BACKOFF_SPREAD", "it is an option: RETRYPROXY_BACKOFF=additive:spread=1s"},
	{"BACKOFF_RATIO", "it is an option: RETRYPROXY_BACKOFF=ratio:ratio=0.1"},
	{"BACKOFF_SLOTS", "it is an option: RETRYPROXY_BACKOFF=slots:slots=10"},
	{"BACKOFF_STAY", "it is an option: RETRYPROXY_BACKOFF=slots:stay=true"},
	{"BACKOFF_EXTRA", "it is an option of each strategy: RETRYPROXY_BACKOFF=fixed:extra=500ms"},
	{"RETRY_POST RETRY_UNSAFE RETRY_NON_IDEMPOTENT RETRY_NONIDEMPOTENT NON_IDEMPOTENT RETRY_ALL_METHODS DISABLE_RETRY_ON_POST", "did you mean RETRYPROXY_RETRY_METHODS=any?"},
	{"RETRY_PERCENT", "POST /retry-percent of the admin listener changes it in a running process"},
	{"CIRCUIT_BREAKER CIRCUIT_BREAKERS BREAKER_ENABLED CIRCUIT_BREAKER_ENABLED", "it is on by default; RETRYPROXY_BREAKER=queue, fail-fast or off says what happens to requests while it is open"},
	{"CLIENT_THROTTLING", "removed: the circuit breaker (RETRYPROXY_BREAKER), RETRYPROXY_CONCURRENCY_LIMIT and the retry budget protect the upstream"},
	{"FAULT_INJECTION", "removed: let the upstream fail, such as nginx with split_clients (docs/how-to/try-out.md)"},
	{"MAX_CONCURRENCY CONCURRENCY MAX_CONCURRENT MAX_CONCURRENT_REQUESTS MAX_REQUESTS MAX_PARALLEL MAX_IN_FLIGHT MAX_INFLIGHT INFLIGHT_REQ", "did you mean RETRYPROXY_CONCURRENCY_LIMIT=100 (attempts in flight to the upstream)?"},
	{"RATELIMIT RATE RPS RATE_LIMIT_RPS RATE_LIMIT_REQUESTS RATE_LIMIT_PER_SECOND LIMIT_REQ QPS THROTTLE", "did you mean RETRYPROXY_RATE_LIMIT=100/s?"},
	{"RATE_LIMIT_BURST BURST", "attempts are spread evenly; RETRYPROXY_RATE_LIMIT_WAIT says how long requests wait for their turn"},
	{"HEALTH_CHECK HEALTHCHECK HEALTHCHECK_PATH HEALTH_CHECK_PATH HEALTH_URL OPTION_HTTPCHK HEALTH_ENDPOINT", "did you mean RETRYPROXY_HEALTH_PATH=/healthz?"},
	{"HEALTH_INTERVAL HEALTH_CHECK_INTERVAL HEALTHCHECK_INTERVAL", "health checks are 10s apart"},
	{"EJECT_AFTER OUTLIER_DETECTION CONSECUTIVE_5XX MAX_FAILS FAIL_TIMEOUT OUTLIER_EJECTION", "an endpoint is ejected after 5 failures in a row; RETRYPROXY_BREAKER=off turns ejection off"},
	{"VIA", "no Via header is added, because some servers stop compressing when they see it"},
	{"LOG DEBUG VERBOSE QUIET", "did you mean RETRYPROXY_ACCESS_LOG=true (a line per request) or RETRYPROXY_LOG_LEVEL=warn (fewer lines)?"},
	{"TLS_VERSION SSL_PROTOCOLS TLS_PROTOCOLS MIN_TLS_VERSION TLS_MINIMUM_VERSION", "did you mean RETRYPROXY_TLS_MIN_VERSION=1.3?"},
	{"LOG_FORMAT", "log lines are JSON, or columns if standard error is a terminal"},
	{"PPROF", "profiles are always served at /debug/pprof/ of the admin listener, to loopback or with the token of RETRYPROXY_ADMIN_TOKEN_FILE"},
	{"REDIS REDIS_URL VALKEY VALKEY_URL REDIS_ADDR REDIS_HOST", "did you mean RETRYPROXY_SHARED=redis://host?"},
	{"SHARED_SCOPE", "it is an option: RETRYPROXY_SHARED=redis://host?scope=NAME"},
	{"SHARED_PASSWORD_FILE", "it is an option: RETRYPROXY_SHARED=redis://host?password_file=FILE"},
	{"SHARED_CA", "it is an option: RETRYPROXY_SHARED=rediss://host?ca=FILE"},
	{"SHARED_CERT SHARED_KEY", "it is an option: RETRYPROXY_SHARED=rediss://host?cert=FILE, with the key in the same file or beside it"},
	{"TLS_CERTIFICATE SSL_CERTIFICATE SSL_CERT SERVER_CERT CERT CERT_FILE TLS_CRT", "did you mean RETRYPROXY_TLS_CERT (for clients) or RETRYPROXY_UPSTREAM_CERT (for an https upstream)?"},
	{"SSL_CERTIFICATE_KEY SSL_KEY SERVER_KEY KEY KEY_FILE", "did you mean RETRYPROXY_TLS_KEY (for clients) or RETRYPROXY_UPSTREAM_KEY (for an https upstream)?"},
	{"CA CA_FILE TLS_CA CACERT CA_CERT CA_BUNDLE ROOT_CA SSL_CERT_FILE UPSTREAM_CA_FILE PROXY_SSL_TRUSTED_CERTIFICATE", "did you mean RETRYPROXY_UPSTREAM_CA (for an https upstream) or RETRYPROXY_TLS_CLIENT_CA (for clients)?"},
	{"INSECURE_SKIP_VERIFY INSECURE SKIP_VERIFY TLS_SKIP_VERIFY TLS_INSECURE UPSTREAM_INSECURE UPSTREAM_INSECURE_SKIP_VERIFY UPSTREAM_SKIP_VERIFY UPSTREAM_TLS_VERIFY TLS_VERIFY SSL_VERIFY VERIFY VERIFY_SSL PROXY_SSL_VERIFY NO_CHECK_CERTIFICATE", "certificates are always verified; for a private CA set RETRYPROXY_UPSTREAM_CA=FILE, and for a certificate with another name RETRYPROXY_UPSTREAM_HOST=NAME"},
	{"TLS SSL HTTPS TLS_ENABLED", "clients may use TLS if RETRYPROXY_TLS_CERT is set; TLS to the upstream is the scheme of RETRYPROXY_UPSTREAM=https://app:3000"},
	{"PROXY_PROTOCOL ACCEPT_PROXY SEND_PROXY", "RETRYPROXY_PROXY_PROTOCOL_FROM names the peers that send the PROXY protocol; none is sent to the upstream"},
	{"ADMIN_TOKEN ADMIN_PASSWORD", "the token is in the file of RETRYPROXY_ADMIN_TOKEN_FILE"},
	{"UPSTREAM_TLS UPSTREAM_SSL UPSTREAM_PROTOCOL UPSTREAM_SCHEME", "the scheme is part of RETRYPROXY_UPSTREAM=https://app:3000"},
	{"HTTP2 H2 H2C GRPC", "clients may always use HTTP/2; for HTTP/2 to the upstream use its scheme: RETRYPROXY_UPSTREAM=h2c://app:3000"},
	{"UPSTREAM_PATH BASE_PATH PATH_PREFIX", "the path is part of RETRYPROXY_UPSTREAM=http://app:3000/v2"},
	{"HOST_HEADER PRESERVE_HOST PROXY_PRESERVE_HOST CHANGE_ORIGIN PASS_HOST_HEADER", "did you mean RETRYPROXY_UPSTREAM_HOST=preserve or RETRYPROXY_UPSTREAM_HOST=upstream?"},
	{"HEADERS REQUEST_HEADERS PROXY_SET_HEADER ADD_HEADERS SET_HEADERS", "did you mean RETRYPROXY_REQUEST_HEADERS_SET (to the upstream) or RETRYPROXY_RESPONSE_HEADERS_SET (to clients)?"},
	{"API_KEY AUTHORIZATION AUTH_TOKEN TOKEN BEARER_TOKEN", "secret headers for the upstream are in the file of RETRYPROXY_REQUEST_HEADERS_FILE"},
	{"LOAD_BALANCER LB LB_POLICY LOAD_BALANCING BALANCER", "did you mean RETRYPROXY_BALANCE=least-requests?"},
	{"WORKERS WORKER_PROCESSES NBTHREAD THREADS", "GOMAXPROCS is the number of threads; by default it follows from the CPU limit"},
	{"HEDGE HEDGING HEDGE_DELAY HEDGE_POLICY", "did you mean RETRYPROXY_HEDGE_AFTER=p95?"},
	{"RETRY_BUDGET BUDGET RETRY_RATIO BUDGET_PERCENT MIN_RETRY_CONCURRENCY", "did you mean RETRYPROXY_BUDGET_RATIO=20%?"},
	{"GRACE_PERIOD SHUTDOWN_TIMEOUT GRACEFUL_TIMEOUT GRACEFUL_SHUTDOWN_TIMEOUT STOP_TIMEOUT", "did you mean RETRYPROXY_DRAIN_TIMEOUT=20s?"},
	{"SHUTDOWN_DELAY PRE_STOP PRESTOP", "did you mean RETRYPROXY_DRAIN_DELAY=5s?"},
	{"TRUST_PROXY REAL_IP_FROM SET_REAL_IP_FROM FORWARDED_ALLOW_IPS TRUSTED_IPS", "did you mean RETRYPROXY_TRUSTED_PROXIES?"},
	{"REQUEST_BUFFER_SIZE BUFFER_SIZE MAX_REQUEST_BYTES PER_REQUEST_BUFFER_LIMIT_BYTES", "did you mean RETRYPROXY_RETRY_BUFFER_BYTES (a body that is kept for retries)?"},
	{"CACHE CACHE_TTL PROXY_CACHE", "responses are not cached"},
	{"COMPRESSION GZIP", "bodies are passed on as they are; the application compresses"},
	{"OTEL TRACING TRACE OTLP_ENDPOINT", "traces are set by the variables of OpenTelemetry, such as OTEL_EXPORTER_OTLP_ENDPOINT (docs/how-to/traces.md)"},
	{"CONFIG CONFIG_PATH CONF CONFIGFILE SETTINGS SETTINGS_FILE", "did you mean RETRYPROXY_CONFIG_FILE?"},
}

// hintFor returns the hint for a name without prefix, or "".
func hintFor(key string) string {
	for _, h := range hints {
		if slices.Contains(strings.Fields(h.names), key) {
			return h.hint
		}
	}
	return ""
}

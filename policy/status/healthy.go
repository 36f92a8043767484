package status

// Healthy reports whether a probe or a health check with this status shows that the upstream
// accepts requests. A 4xx does: the request was read, and a wrong or protected path must not keep a
// breaker open or eject all endpoints. 429 asks for fewer requests, and readiness checks report
// failure with a 5xx.
func Healthy(code int) bool { return code >= 200 && code < 500 && code != 429 }

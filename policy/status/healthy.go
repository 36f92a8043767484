package status

// Healthy reports whether a probe or a health check that got this status shows that the upstream takes
// requests. A 4xx does: the request was read, and a wrong or protected path must neither keep a
// breaker open nor take all endpoints away. 429 asks for fewer requests, and readiness checks report
// failure by a 5xx.
func Healthy(code int) bool { return code >= 200 && code < 500 && code != 429 }

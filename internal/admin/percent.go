package admin

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
)

// RetryPercent is the live switch for retries. Both functions must be safe for concurrent use.
type RetryPercent struct {
	Get func() int
	Set func(percent int) // 0 to 100
}

// maxPercentBody is more bytes than any percentage needs.
const maxPercentBody = 64

// ServeHTTP shows the percentage by GET and changes it by POST. In addition to the checks of
// Access, a change must be application/json. A page of another site cannot send that type without
// a CORS preflight, which this server does not answer. That holds even for a browser that leaves
// out Origin.
func (p RetryPercent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet:
	case http.MethodPost:
		if status, err := p.change(r); err != nil {
			say(w, status, err.Error())
			return
		}
	default:
		w.Header().Set("Allow", "GET, POST")
		say(w, http.StatusMethodNotAllowed, "expected GET or POST")
		return
	}
	say(w, http.StatusOK, strconv.Itoa(p.Get()))
}

func (p RetryPercent) change(r *http.Request) (status int, err error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return http.StatusUnsupportedMediaType, errors.New("expected Content-Type: application/json, which curl --json 30 sends")
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxPercentBody+1))
	if err != nil {
		return http.StatusBadRequest, err
	}
	if len(body) > maxPercentBody {
		return http.StatusBadRequest, errors.New("the body is too long for a number from 0 to 100")
	}
	n, err := parsePercent(string(body))
	if err != nil {
		return http.StatusBadRequest, err
	}
	p.Set(n)
	return 0, nil
}

// parsePercent parses a whole number from 0 to 100, with optional white space around it.
func parsePercent(s string) (int, error) {
	n, err := strconv.ParseUint(strings.TrimSpace(s), 10, 8)
	if err != nil || n > 100 {
		return 0, fmt.Errorf("%q: expected a whole number from 0 to 100", strings.TrimSpace(s))
	}
	return int(n), nil
}

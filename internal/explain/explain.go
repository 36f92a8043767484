// Package explain determines which route a request takes, and whether and why it would be retried
// after each kind of failure. It reads settings and opens no files or sockets.
package explain

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/retryproxy/retryproxy/internal/config"
	"github.com/retryproxy/retryproxy/internal/text"
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/tokens"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/request"
	"github.com/retryproxy/retryproxy/proxy/route"
)

// View is what `explain` prints.
type View struct {
	Request     string       `json:"request"`
	Model       string       `json:"model,omitempty"` // named by the path, or else by the body, as given by the caller
	ModelInPath bool         `json:"-"`
	Refused     *refusalView `json:"refused,omitempty"` // then nothing else is set, except Route if the request has one
	Hint        string       `json:"hint,omitempty"`    // what the user probably meant
	Route       string       `json:"route,omitempty"`
	Upstream    string       `json:"upstream,omitempty"`
	Nearest     *Near        `json:"nearest_route,omitempty"` // set if no route matches, but there are some
	DryRun      bool         `json:"dry_run,omitempty"`       // nothing is retried; the rest shows what would be retried
	// Retryable means that sending the request twice does no harm, by the settings.
	Retryable  bool   `json:"retriable"`
	Why        string `json:"why,omitempty"`
	MaxRetries int    `json:"max_retries"`
	// StreamSeconds is how long an event stream is held back until its first content; 0: not at all.
	StreamSeconds float64    `json:"first_content_timeout_seconds,omitempty"`
	Failures      []caseView `json:"failures,omitempty"`
}

type refusalView struct {
	Status int    `json:"status"`
	Reason string `json:"reason"`
	Text   string `json:"text"`
}

type caseView struct {
	Failure    string  `json:"failure"`
	Text       string  `json:"text"`
	Retried    bool    `json:"retried"`
	Class      string  `json:"class"`
	Reason     string  `json:"reason,omitempty"`
	ReasonText string  `json:"reason_text,omitempty"`
	MinWait    float64 `json:"min_wait_seconds"`
	MaxWait    float64 `json:"max_wait_seconds"`

	answer Answer
	words  string // the reason, in words
}

// RequestHead returns the request line and headers as a client would send them, for the real
// parser. whole means that the target keeps its scheme and host. RequestHead only rejects characters
// that would end a line early.
func RequestHead(method, target string, headers []string, whole bool) ([]byte, error) {
	host := "localhost"
	if u, err := url.Parse(target); err == nil && u.Host != "" {
		host = u.Host
		before := u.Scheme + "://" + u.Host
		target = strings.TrimPrefix(target, before)
		if target == "" || target[0] == '?' {
			target = "/" + target
		}
		if whole {
			target = before + target
		}
	}
	target, _, _ = strings.Cut(target, "#") // clients do not send it
	if !strings.HasPrefix(target, "/") && target != "*" && method != "CONNECT" && !strings.Contains(target, "://") {
		return nil, errors.New("expected a URL or a path that begins with /")
	}
	for _, field := range headers {
		if name, value, _ := strings.Cut(field, ":"); strings.EqualFold(name, "Host") {
			host = strings.TrimSpace(value)
		}
	}
	head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\n", method, target, host)
	for _, field := range headers {
		if name, _, _ := strings.Cut(field, ":"); !strings.EqualFold(name, "Host") {
			head += field + "\r\n"
		}
	}
	if strings.Count(head, "\n") != strings.Count(head, "\r\n") || strings.Contains(method+target+host+strings.Join(headers, ""), "\r\n") {
		return nil, errors.New("a line end cannot be part of a request's line or field")
	}
	return []byte(head + "\r\n"), nil
}

// withModel looks up the headers of a request, and the model that it names, or "".
type withModel struct {
	*http1.Request
	model string
}

// Lookup implements route.HeaderLookup.
func (w withModel) Lookup(name string) ([]byte, bool) {
	if name == route.ModelKey {
		return []byte(w.model), w.model != ""
	}
	return w.Request.Lookup(name)
}

// Explain evaluates the request with these headers, received by that listener; "" is the main one.
// model is the model named by the body, or "".
func Explain(s *config.Settings, head []byte, listener, model string) (*View, error) {
	line, _, _ := strings.Cut(string(head), " HTTP/1.1\r\n")
	v := &View{Request: line, Model: model, Hint: methodHint(line)}
	var q http1.Request
	if _, err := q.Parse(head, config.HeaderLimits()); err != nil {
		var refused *http1.Error
		if !errors.As(err, &refused) {
			return nil, err
		}
		v.Refused = &refusalView{refused.Status, refused.Reason.String(), refused.Reason.Explain()}
		return v, nil
	}
	var look tokens.Request
	if look.ReadPath(q.Path); look.Model() != nil {
		model = string(look.Model())
		v.Model, v.ModelInPath = model, true
	}
	table, err := routeTable(s)
	if err != nil {
		return nil, err
	}
	if listener == string(s.Default.Listen) {
		listener = ""
	}
	fields := withModel{&q, model}
	r := table.Find(listener, q.Authority, q.Path, q.Method, fields)
	v.Route, v.Upstream, v.DryRun = r.Name, r.Upstream.String(), r.DryRun
	if r == &s.Default {
		v.Nearest = nearest(s, listener, &q, fields)
	}
	if s.ForwardProxy() && q.Form == http1.Absolute {
		if meant, err := isMeant(s, r, &q); err != nil || !meant {
			why := http1.RefusalOtherHost
			v.Refused = &refusalView{why.Status(), why.String(), why.Explain()}
			return v, err
		}
	}
	if table.Ambiguous(listener, q.Authority, q.Path, q.Method, fields, r.StripPrefix) ||
		hasBasePath(append(s.FallbackUpstreams(r), r.Upstream)) && route.Climbs(q.Path) {
		why := http1.RefusalAmbiguousPath
		v.Refused = &refusalView{why.Status(), why.String(), why.Explain()}
		return v, nil
	}
	return v, v.judge(r, &q)
}

// methodHint returns a hint if a method is a common one in lower case, "" otherwise.
func methodHint(line string) string {
	method, _, _ := strings.Cut(line, " ")
	meant := policy.MeantMethod(method)
	if meant == "" {
		return ""
	}
	return fmt.Sprintf("HTTP does not define the method %s; did you mean %s? Methods are case-sensitive.", method, meant)
}

// hasBasePath reports whether one of the upstreams gets its requests below a path.
func hasBasePath(all []config.Upstream) bool {
	return slices.ContainsFunc(all, func(u config.Upstream) bool { return u.Target().BasePath != "" })
}

// isMeant reports whether a request to a forward proxy belongs to its route, by the data path's
// rules.
func isMeant(s *config.Settings, r *config.Route, q *http1.Request) (bool, error) {
	c, err := config.Build(s)
	if err != nil {
		return false, err
	}
	for i := range c.Routes {
		if &s.Routes[i] == r {
			return c.Routes[i].Accepts(q), nil
		}
	}
	return c.Default.Accepts(q), nil
}

func routeTable(s *config.Settings) (*route.Table[*config.Route], error) {
	rules := make([]route.Rule[*config.Route], len(s.Routes))
	for i := range s.Routes {
		r := &s.Routes[i]
		rules[i] = route.Rule[*config.Route]{Match: r.Match(s), Value: r, Name: r.Name}
	}
	return route.New(rules, &s.Default)
}

// judge adds the policy's decisions.
func (v *View) judge(r *config.Route, q *http1.Request) error {
	p, err := r.Policy()
	if err != nil {
		return err
	}
	carries := q.Get(http1.IdempotencyKey) != nil
	asked := Request{
		Method: q.Method, HasKey: carries || r.RetryMethods.AddKey(), IsRetry: request.IsRetry(q, true), Layered: r.LayeredRetries, Timeout: r.RequestTimeout,
	}
	v.MaxRetries, v.StreamSeconds = p.MaxRetries, r.FirstContentTimeout.Seconds()
	if asked.IsRetry {
		v.MaxRetries = r.LayeredRetries.MaxRetries(p.MaxRetries)
	}
	v.Retryable = p.Retryable(q.Method, asked.HasKey)
	v.Why = whyRetryable(r, q, carries)
	if asked.IsRetry {
		v.Why += fmt.Sprintf("; the request is itself a retry of another proxy, so it gets %s of %d", text.Plural(v.MaxRetries, "retry"), p.MaxRetries)
	}
	for _, a := range Ask(&p, asked) {
		v.Failures = append(v.Failures, viewCase(a, string(q.Method)))
	}
	return nil
}

func whyRetryable(r *config.Route, q *http1.Request, carries bool) string {
	switch {
	case r.RetryMethods.Has(q.Method):
		return fmt.Sprintf("%s is one of RETRYPROXY_RETRY_METHODS", q.Method)
	case carries:
		return "the request has an Idempotency-Key"
	case r.RetryMethods.AddKey():
		return "retryproxy adds an Idempotency-Key (RETRYPROXY_RETRY_METHODS=any-with-key)"
	case r.RetryMethods.Any():
		return "RETRYPROXY_RETRY_METHODS=any"
	}
	return fmt.Sprintf("a second %s may do the work twice, so the request is retried only if it was not sent, or was rejected before the work began (%s)", q.Method, r.RetryRejected)
}

func viewCase(a Answer, method string) caseView {
	d := a.Decision
	v := caseView{
		Failure: a.Name, Text: a.Text, Retried: d.Retry, Class: d.Class.String(), MinWait: a.MinWait.Seconds(), MaxWait: a.MaxWait.Seconds(), answer: a,
	}
	if d.Why.ForRetry() || d.Why.WhyNot() {
		v.Reason, v.ReasonText, v.words = d.Why.String(), d.Why.Explain(), d.Why.WordsFor(method)
	}
	return v
}

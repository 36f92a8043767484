package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/retryproxy/retryproxy/cmd/retryproxy/internal/assemble"
	"github.com/retryproxy/retryproxy/cmd/retryproxy/internal/settings"
	"github.com/retryproxy/retryproxy/cmd/retryproxy/internal/verdict"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/route"
)

var explainCommand = command{
	name:    "explain",
	args:    "METHOD URL [-H 'Name: value']... [--json]",
	summary: "tell which route a request takes, and whether and why it would be retried",
	details: `Takes the request as a client would send it to retryproxy, reads the settings as
starting would, and opens nothing. URL may be a path such as /search/x; the Host
is then localhost, or what -H 'Host: ...' says. With RETRYPROXY_FORWARD_PROXY a URL
with a host is taken as http_proxy makes clients send it, host and all.

Prints the route, and for every kind of failure whether the request would be
sent again and why, with time, budget and memory to spare.`,
	run: runExplain,
}

// fields collects -H.
type fields []string

func (f *fields) String() string { return strings.Join(*f, ", ") }

func (f *fields) Set(s string) error {
	name, _, found := strings.Cut(s, ":")
	if !found || name == "" {
		return errors.New(`expected "Name: value"`)
	}
	*f = append(*f, s)
	return nil
}

// explainView is what `explain` prints.
type explainView struct {
	Request  string       `json:"request"`
	Refused  *refusalView `json:"refused,omitempty"` // nothing else is set then, but Route for what has one
	Route    string       `json:"route,omitempty"`
	Upstream string       `json:"upstream,omitempty"`
	DryRun   bool         `json:"dry_run,omitempty"` // nothing is retried, and what follows says what would be
	// Retriable: sending it twice does no harm, as far as the settings say.
	Repeatable bool       `json:"retriable"`
	Why        string     `json:"why,omitempty"`
	MaxRetries int        `json:"max_retries"`
	Failures   []caseView `json:"failures,omitempty"`
}

type refusalView struct {
	Status int    `json:"status"`
	Reason string `json:"reason"`
	Text   string `json:"text"`
}

type caseView struct {
	Failure    string  `json:"failure"`
	Text       string  `json:"text"`
	Repeated   bool    `json:"retried"`
	Class      string  `json:"class"`
	Reason     string  `json:"reason,omitempty"`
	ReasonText string  `json:"reason_text,omitempty"`
	MinWait    float64 `json:"min_wait_seconds"`
	MaxWait    float64 `json:"max_wait_seconds"`

	answer verdict.Answer
}

func runExplain(_ context.Context, c *call) error {
	f := c.flags()
	var header fields
	f.Var(&header, "H", "a header of the request, as in curl; may be repeated (`'Name: value'`)")
	asJSON := f.Bool("json", false, "print JSON")
	listener := f.String("listen", "", "the `address` of a route's own listener by which the request comes; default the main one")
	rest, err := c.parse(f, 2)
	if err != nil {
		return err
	}
	if len(rest) != 2 {
		return c.usage(f, errors.New("expected METHOD and URL"))
	}
	s, problems := settings.Load(c.env)
	head, err := requestHead(rest[0], rest[1], header, s != nil && s.ForwardProxy)
	if err != nil {
		return c.usage(f, err)
	}
	if problems.Err() != nil {
		printProblems(c.stderr, c.paint(c.stderr), problems)
		return fmt.Errorf("%w %w", errTold, settings.ErrInvalid)
	}
	v, err := explain(s, head, *listener)
	if err != nil {
		return err
	}
	if *asJSON {
		return printJSON(c.stdout, v)
	}
	printExplain(c, v)
	return nil
}

// requestHead writes the head that a client would send, so that the parser's
// own judgement counts. whole: the target keeps its scheme and host. Only what
// would end a line early is refused here.
func requestHead(method, target string, header fields, whole bool) ([]byte, error) {
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
	for _, field := range header {
		if name, value, _ := strings.Cut(field, ":"); strings.EqualFold(name, "Host") {
			host = strings.TrimSpace(value)
		}
	}
	head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\n", method, target, host)
	for _, field := range header {
		if name, _, _ := strings.Cut(field, ":"); !strings.EqualFold(name, "Host") {
			head += field + "\r\n"
		}
	}
	if strings.Count(head, "\n") != strings.Count(head, "\r\n") || strings.Contains(method+target+host+strings.Join(header, ""), "\r\n") {
		return nil, errors.New("a line end cannot be part of a request's line or field")
	}
	return []byte(head + "\r\n"), nil
}

func explain(s *settings.Settings, head []byte, listener string) (*explainView, error) {
	line, _, _ := strings.Cut(string(head), " HTTP/1.1\r\n")
	v := &explainView{Request: line}
	var q http1.Request
	if _, err := q.Parse(head, http1.Limits{HeaderBytes: int(s.MaxHeaderBytes), Headers: s.MaxHeaders}); err != nil {
		var refused *http1.Error
		if !errors.As(err, &refused) {
			return nil, err
		}
		v.Refused = &refusalView{refused.Status, refused.Reason.String(), refused.Reason.Explain()}
		return v, nil
	}
	table, err := routeTable(s)
	if err != nil {
		return nil, err
	}
	if listener == s.Listen.String() {
		listener = ""
	}
	r := table.Find(listener, q.Authority, q.Path, q.Method, &q)
	v.Route, v.Upstream, v.DryRun = r.Name, r.Upstream.String(), r.DryRun
	if s.ForwardProxy && q.Form == http1.Absolute {
		if meant, err := isMeant(s, r, &q); err != nil || !meant {
			why := http1.RefusalOtherHost
			v.Refused = &refusalView{why.Status(), why.String(), why.Explain()}
			return v, err
		}
	}
	if table.Ambiguous(listener, q.Authority, q.Path, q.Method, &q, r.StripPrefix) {
		why := http1.RefusalAmbiguousPath
		v.Refused = &refusalView{why.Status(), why.String(), why.Explain()}
		return v, nil
	}
	return v, v.judge(r, &q)
}

// isMeant asks the data path whether a request to a forward proxy is for its route.
func isMeant(s *settings.Settings, r *settings.Route, q *http1.Request) (bool, error) {
	c, err := assemble.Config(s)
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

func routeTable(s *settings.Settings) (*route.Table[*settings.Route], error) {
	rules := make([]route.Rule[*settings.Route], len(s.Routes))
	for i := range s.Routes {
		r := &s.Routes[i]
		rules[i] = route.Rule[*settings.Route]{Match: r.Match(s), Value: r, Name: r.Name}
	}
	return route.New(rules, &s.Default)
}

// judge fills in what the policy says.
func (v *explainView) judge(r *settings.Route, q *http1.Request) error {
	p, err := r.Policy()
	if err != nil {
		return err
	}
	nested, err := r.LayeredRetriesRule()
	if err != nil {
		return err
	}
	carries := q.Get(http1.IdempotencyKey) != nil
	request := verdict.Request{
		Method: q.Method, HasKey: carries || r.IdempotencyKey == "generate", Repeat: isRepeat(q), Nested: nested, Timeout: r.RequestTimeout,
	}
	v.MaxRetries = p.MaxRetries
	if request.Repeat {
		v.MaxRetries = nested.MaxRetries(p.MaxRetries)
	}
	v.Repeatable = p.Retryable(q.Method, request.HasKey)
	v.Why = whyRepeatable(r, q, carries)
	if request.Repeat {
		v.Why += fmt.Sprintf("; a proxy before us has sent it before, so %s of %d", plural(v.MaxRetries, "retry"), p.MaxRetries)
	}
	for _, a := range verdict.Ask(&p, request) {
		v.Failures = append(v.Failures, viewCase(a))
	}
	return nil
}

// isRepeat says what the data path says of the marks of other proxies.
func isRepeat(q *http1.Request) bool {
	above := func(id http1.HeaderName, limit int64) bool {
		n, ok := http1.ParseUint(q.Get(id))
		return ok && n > limit
	}
	return above(http1.XRetryproxyAttempt, 1) || above(http1.XEnvoyAttemptCount, 1) || above(http1.GRPCPreviousRPCAttempts, 0)
}

func whyRepeatable(r *settings.Route, q *http1.Request, carries bool) string {
	switch {
	case r.RetryMethods.Has(q.Method):
		return fmt.Sprintf("%s is one of RETRYPROXY_RETRY_METHODS", q.Method)
	case carries:
		return "it carries an Idempotency-Key"
	case r.IdempotencyKey == "generate":
		return "it is given an Idempotency-Key (RETRYPROXY_IDEMPOTENCY_KEY=generate)"
	case r.RetryUnsafe:
		return "RETRYPROXY_RETRY_UNSAFE=true"
	}
	return fmt.Sprintf("%s may act twice when it is sent twice; only what surely was not sent, or was rejected before the work began (%s), is retried", q.Method, r.RetryRejected)
}

func viewCase(a verdict.Answer) caseView {
	d := a.Decision
	v := caseView{
		Failure: a.Name, Text: a.Text, Repeated: d.Retry, Class: d.Class.String(), MinWait: a.MinWait.Seconds(), MaxWait: a.MaxWait.Seconds(), answer: a,
	}
	if d.Why.ForRetry() || d.Why.WhyNot() {
		v.Reason, v.ReasonText = d.Why.String(), d.Why.Explain()
	}
	return v
}

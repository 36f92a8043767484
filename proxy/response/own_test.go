package response_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/requesttest"
	"github.com/retryproxy/retryproxy/proxy/request"
	"github.com/retryproxy/retryproxy/proxy/response"
	"github.com/retryproxy/retryproxy/proxy/settings"
)

// errorBody is what the JSON body of an error says, in its plain form.
type errorBody struct {
	Error     string `json:"error"`
	Status    int    `json:"status"`
	Reason    string `json:"reason"`
	Attempts  int    `json:"attempts"`
	RequestID string `json:"request_id"`
}

// errorOf parses the response that the client got, and checks that it is whole.
func (s *served) errorOf() (res *http.Response, e errorBody) {
	s.t.Helper()
	res, body := s.Response("GET")
	if err := json.Unmarshal([]byte(body), &e); err != nil {
		s.t.Errorf("%v: %q", err, body)
	}
	if n := res.Header.Get("Content-Length"); n != strconv.Itoa(len(body)) || s.w.BodySent() != int64(len(body)) {
		s.t.Errorf("Content-Length %s, %d counted, %d bytes of body", n, s.w.BodySent(), len(body))
	}
	if e.Status != res.StatusCode {
		s.t.Errorf("the body says %d, the status is %d", e.Status, res.StatusCode)
	}
	return res, e
}

func TestAnErrorSaysWhatWhyAndHowOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, with(), nil)
		s.BeginAttempt()
		outcome := policy.GaveUp(policy.ReasonDeadline)
		end := s.w.Error(503, outcome, "deadline")
		if end.Status != 503 || end.Outcome != outcome {
			t.Errorf("%d, %v", end.Status, end.Outcome)
		}
		res, e := s.errorOf()
		if res.StatusCode != 503 || e.Reason != "deadline" || e.Attempts != 2 || e.RequestID != "id-1" || !strings.Contains(e.Error, "Service Unavailable") {
			t.Errorf("%d %+v", res.StatusCode, e)
		}
		for name, want := range map[string]string{
			"Content-Type": "application/json", "X-Retryproxy-Reason": "deadline", "X-Retryproxy-Attempts": "2", "X-Request-Id": "id-1",
			"Date": time.Now().UTC().Format(http.TimeFormat), "Retry-After": "", "Allow": "", "Connection": "", "X-Retryproxy-Fallback": "",
		} {
			if got := strings.Join(res.Header[name], "|"); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		if !s.w.KeepsConnection() || s.w.Resets() || end.Reason != "deadline" {
			t.Errorf("keeps %v, resets %v, reason %q", s.w.KeepsConnection(), s.w.Resets(), end.Reason)
		}
	})
}

// A client that has a part of another response gets nothing of ours: its connection is reset.
func TestNoErrorFollowsAResponseThatBegan(t *testing.T) {
	s := serve(t, with(), nil)
	s.w.Headers(said(t, 200), http1.Framing{Kind: http1.BodyChunked}, s.Time.Now(), "")
	if err := s.w.Flush(); err != nil {
		t.Fatal(err)
	}
	before := s.Wire.String()
	end := s.w.Error(502, policy.OutcomeResponseBroken, "reset")
	if end.Status != 502 || end.Outcome != policy.OutcomeResponseBroken {
		t.Errorf("%d, %v", end.Status, end.Outcome)
	}
	if s.Wire.String() != before || !s.w.Resets() || s.w.KeepsConnection() || end.Reason != "reset" {
		t.Errorf("resets %v, reason %q: %q", s.w.Resets(), end.Reason, s.Wire.String())
	}
}

func TestHEADGetsTheHeadersOfTheErrorAlone(t *testing.T) {
	s := serve(t, strings.Replace(with(), "GET", "HEAD", 1), nil)
	s.w.Error(503, policy.OutcomeOverloaded, "overloaded")
	res, body := s.Response("HEAD")
	if n, _ := strconv.Atoi(res.Header.Get("Content-Length")); res.StatusCode != 503 || body != "" || n < 20 || s.w.BodySent() != 0 {
		t.Errorf("%d, Content-Length %d, %d sent: %q", res.StatusCode, n, s.w.BodySent(), s.Wire.String())
	}
	if !s.w.KeepsConnection() {
		t.Error("the connection ends")
	}
}

func TestTheFormOfAnErrorIsTheClients(t *testing.T) {
	for name, tc := range map[string]struct {
		request     string
		modelAPI    bool
		contentType string
		has         []string // of the body
		requestID   string
	}{
		"plain":      {with(), false, "application/json", []string{`{"error":"retryproxy: `}, ""},
		"problem":    {with("Accept: application/problem+json"), false, "application/problem+json", []string{`"type":"about:blank"`, `"detail":"retryproxy: `}, ""},
		"of a model": {with(), true, "application/json", []string{`{"type":"error"`, `"message":"retryproxy: `, `"code":"why"`}, "id-1"},
	} {
		s := serve(t, tc.request, func(c *settings.Config) { c.Default.ModelAPI = tc.modelAPI })
		s.w.With(503, policy.OutcomeOverloaded, "why", "what")
		res, body := s.Response("GET")
		if got := res.Header.Get("Content-Type"); got != tc.contentType {
			t.Errorf("%s: Content-Type %s", name, got)
		}
		for _, want := range tc.has {
			if !strings.Contains(body, want) {
				t.Errorf("%s: no %s in %s", name, want, body)
			}
		}
		if got := res.Header.Get("Request-Id"); got != tc.requestID {
			t.Errorf("%s: Request-Id %q", name, got)
		}
	}
}

// Without an id there is no empty header.
func TestNoRequestIDOfAModelWithoutAnID(t *testing.T) {
	s := serve(t, with(), func(c *settings.Config) { c.Default.ModelAPI = true })
	s.Out.ID = nil
	s.w.Error(503, policy.OutcomeOverloaded, "why")
	if res, _ := s.Response("GET"); len(res.Header["Request-Id"])+len(res.Header["X-Request-Id"]) > 0 {
		t.Error(res.Header)
	}
}

func TestAResponseOfOurOwnHasItsTypeAndBody(t *testing.T) {
	s := serve(t, with(), nil)
	s.w.InPlaceOfUpstream(response.FallbackResponse)
	end := s.w.Own(207, "text/x-own", []byte("instead"), policy.OutcomeFallback, "status_503")
	res, body := s.Response("GET")
	if end.Status != 207 || end.Outcome != policy.OutcomeFallback || res.StatusCode != 207 || body != "instead" || res.Header.Get("Content-Type") != "text/x-own" {
		t.Errorf("%d %v: %d %v %q", end.Status, end.Outcome, res.StatusCode, res.Header, body)
	}
	if res.Header.Get("X-Retryproxy-Fallback") != "answer" || res.Header.Get("X-Retryproxy-Reason") != "status_503" || s.w.BodySent() != 7 {
		t.Errorf("%v, %d sent", res.Header, s.w.BodySent())
	}
}

func TestWhatRespondedInTheUpstreamsPlaceHasAName(t *testing.T) {
	for by, want := range map[response.Fallback]string{response.NoFallback: "", response.FallbackResponse: "answer", response.FallbackUpstream: "upstream"} {
		s := serve(t, with(), nil)
		s.w.InPlaceOfUpstream(by)
		if got := strings.Join(s.relayed(said(t, 200), "")["X-Retryproxy-Fallback"], "|"); got != want {
			t.Errorf("%d: %q, want %q", by, got, want)
		}
	}
}

func TestAWaitIsAskedForInWholeSeconds(t *testing.T) {
	for wait, want := range map[time.Duration]string{
		0: "", 999 * time.Millisecond: "", time.Second: "1", 2500 * time.Millisecond: "2", time.Hour: "3600", 100 * 365 * 24 * time.Hour: "2147483647",
	} {
		s := serve(t, with(), nil)
		s.w.Asks(wait)
		if s.w.HasRetryAfter() != (want != "") {
			t.Errorf("%v: %v", wait, s.w.HasRetryAfter())
		}
		s.w.Error(503, policy.OutcomeOverloaded, "overloaded")
		if res, _ := s.errorOf(); res.Header.Get("Retry-After") != want {
			t.Errorf("%v: %q, want %q", wait, res.Header.Get("Retry-After"), want)
		}
	}
}

func TestAMethodThatIsNotAllowedComesWithThoseThatAre(t *testing.T) {
	s := serve(t, with(), nil)
	s.w.Error(405, policy.OutcomeRefused, "max_forwards")
	res, _ := s.errorOf()
	allowed := strings.Split(res.Header.Get("Allow"), ", ")
	for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
		if !slices.Contains(allowed, method) {
			t.Errorf("no %s in %v", method, allowed)
		}
	}
	if slices.Contains(allowed, "TRACE") {
		t.Errorf("TRACE in %v", allowed)
	}
}

// The version and the wish of the client decide whether its connection goes on.
func TestWhoseConnectionGoesOn(t *testing.T) {
	for name, tc := range map[string]struct {
		request    string
		connection string
		keeps      bool
	}{
		"1.1":            {with(), "", true},
		"1.1 that ends":  {with("Connection: close"), "close", false},
		"1.0":            {"GET / HTTP/1.0\r\n\r\n", "close", false},
		"1.0 that stays": {"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "keep-alive", true},
	} {
		s := serve(t, tc.request, nil)
		s.w.Error(503, policy.OutcomeOverloaded, "overloaded")
		if !strings.HasPrefix(s.Wire.String(), "HTTP/1.1 503 Service Unavailable\r\n") {
			t.Errorf("%s: %q", name, s.Wire.String())
		}
		head, _, _ := strings.Cut(s.Wire.String(), "\r\n\r\n")
		_, after, has := strings.Cut(head+"\r\n", "\r\nConnection: ")
		if got, _, _ := strings.Cut(after, "\r\n"); got != tc.connection || has != (tc.connection != "") || s.w.KeepsConnection() != tc.keeps {
			t.Errorf("%s: Connection %q, keeps %v", name, got, s.w.KeepsConnection())
		}
	}
}

// The status of a gRPC call is in its headers, which end it: gRPC has no body for errors.
func TestAnErrorOfAGRPCCallIsAGRPCStatus(t *testing.T) {
	for status, want := range map[int]string{
		400: "13", 401: "16", 403: "7", 404: "12", 405: "12", 501: "12", 505: "12", 408: "4", 413: "8", 431: "8",
		429: "14", 502: "14", 503: "14", 504: "4", 417: "2", 500: "2", 418: "2",
	} {
		s := serve(t, with(), nil)
		s.GRPC = true
		s.w.Asks(3 * time.Second)
		end := s.w.With(status, policy.OutcomeOverloaded, "why", "50% läuft")
		if end.Status != 200 || end.Outcome != policy.OutcomeOverloaded {
			t.Errorf("%d: %d, %v", status, end.Status, end.Outcome)
		}
		res, body := s.Response("GET")
		if res.StatusCode != 200 || body != "" || res.Header.Get("Content-Type") != "application/grpc" || s.w.BodySent() != 0 {
			t.Errorf("%d: %q", status, s.Wire.String())
		}
		if got := res.Header.Get("Grpc-Status"); got != want {
			t.Errorf("%d: grpc-status %s, want %s", status, got, want)
		}
		if got := res.Header.Get("Grpc-Message"); got != "retryproxy: 50%25 l%C3%A4uft" {
			t.Errorf("%d: grpc-message %q", status, got)
		}
		if res.Header.Get("Grpc-Retry-Pushback-Ms") != "3000" || res.Header.Get("Retry-After") != "" || res.Header.Get("X-Retryproxy-Reason") != "why" {
			t.Errorf("%d: %v", status, res.Header)
		}
	}
	s := serve(t, with(), nil)
	s.GRPC = true
	s.w.Error(503, policy.OutcomeOverloaded, "why")
	if res, _ := s.Response("GET"); len(res.Header["Grpc-Retry-Pushback-Ms"]) > 0 {
		t.Error("a wait that nobody asked for")
	}
}

// In place of a response that a gRPC client does not understand it gets the status that its HTTP status
// stands for. An upstream's 504 is not the deadline of the client.
func TestAGRPCClientGetsAStatusInPlaceOfAPage(t *testing.T) {
	for status, want := range map[int]string{502: "14", 504: "14", 401: "16", 200: "2"} {
		s := serve(t, with(), nil)
		s.GRPC = true
		page := said(t, status, "Content-Type: text/html")
		if !s.w.NotGRPC(page) {
			t.Error("a page is taken for gRPC")
		}
		end := s.w.InPlaceOf(page, request.End{Outcome: policy.OutcomeSuccess, Reason: "not_in_retry_on"})
		if end.Status != 200 || end.Outcome != policy.OutcomeSuccess {
			t.Errorf("%d, %v", end.Status, end.Outcome)
		}
		res, _ := s.Response("GET")
		if res.Header.Get("Grpc-Status") != want || !strings.Contains(res.Header.Get("Grpc-Message"), strconv.Itoa(status)) || res.Header.Get("X-Retryproxy-Reason") != "not_in_retry_on" {
			t.Errorf("%d: %v", status, res.Header)
		}
	}
}

func TestWhichResponsesAreNotGRPC(t *testing.T) {
	for _, call := range []bool{true, false} {
		s := serve(t, with(), nil)
		s.GRPC = call
		for contentType, isGRPC := range map[string]bool{"application/grpc": true, "application/grpc+proto": true, "text/html": false} {
			if got := s.w.NotGRPC(said(t, 200, "Content-Type: "+contentType)); got != (call && !isGRPC) {
				t.Errorf("%s for a gRPC call %v: %v", contentType, call, got)
			}
		}
	}
}

// A call that was cut off ends with a status, after what was relayed of it.
func TestACallThatWasCutOffEndsWithAStatus(t *testing.T) {
	for want, end := range map[string]func(w *response.Writer) error{
		"14": (*response.Writer).EndGRPCCall, "8": (*response.Writer).EndGRPCCallWithoutTrailers,
	} {
		s := serve(t, with(), nil)
		s.GRPC = true
		f := http1.Framing{Kind: http1.BodyChunked}
		s.w.Headers(said(t, 200, "Content-Type: application/grpc"), f, s.Time.Now(), "")
		if err := s.w.WritePiece(f, []byte("part")); err != nil {
			t.Fatal(err)
		}
		if err := end(&s.w); err != nil {
			t.Fatal(err)
		}
		res, body := s.Response("GET")
		if body != "part" || res.Trailer.Get("Grpc-Status") != want || !strings.HasPrefix(res.Trailer.Get("Grpc-Message"), "retryproxy: ") {
			t.Errorf("%q, trailers %v, want status %s", body, res.Trailer, want)
		}
	}
}

func TestWhatIsSaidOfAnUpstreamThatDidNotRespond(t *testing.T) {
	for cause, want := range map[policy.Cause]struct {
		status int
		text   string
	}{
		policy.CauseDial: {502, "could not be reached"}, policy.CauseTLS: {502, "could not be reached"}, policy.CauseUntrusted: {502, "certificate"},
		policy.CauseAttemptTimeout: {504, "in time"}, policy.CauseMalformed: {502, "not valid HTTP"}, policy.CauseHeadersTooLarge: {502, "larger"},
		policy.CauseReset: {502, "closed the connection"}, policy.CauseIdleClose: {502, "closed the connection"}, policy.CauseRefusedStream: {502, "closed the connection"},
	} {
		for _, timedOut := range []bool{false, true} {
			status := want.status
			if timedOut {
				status = 504
			}
			s := serve(t, with(), nil)
			outcome := policy.GaveUp(policy.ReasonNotIdempotent)
			end := s.w.Failed(cause, timedOut, outcome, policy.ReasonNotIdempotent)
			if end.Status != status || end.Outcome != outcome {
				t.Errorf("%v: %d, %v", cause, end.Status, end.Outcome)
			}
			if res, e := s.errorOf(); res.StatusCode != status || !strings.Contains(e.Error, want.text) || e.Reason != "not_idempotent" {
				t.Errorf("%v: %d %+v", cause, res.StatusCode, e)
			}
		}
	}
}

// A refused request gets the rule that it broke and no other request of the connection is read. It is counted once.
func TestARefusalNamesTheRuleAndEndsTheConnection(t *testing.T) {
	for _, why := range http1.AllRefusals() {
		s := serve(t, with(), nil)
		end := s.w.Refuse(why)
		res, e := s.errorOf()
		if end.Status != why.Status() || end.Outcome != policy.OutcomeRefused || res.StatusCode != why.Status() || e.Reason != why.String() || !strings.Contains(e.Error, why.Explain()) {
			t.Errorf("%v: %d, %v: %d %+v", why, end.Status, end.Outcome, res.StatusCode, e)
		}
		if s.w.KeepsConnection() || !res.Close || !slices.Equal(s.refused, []http1.Refusal{why}) || end.Reason != why.String() {
			t.Errorf("%v: keeps %v, counted %v, logged %q", why, s.w.KeepsConnection(), s.refused, end.Reason)
		}
		wait := ""
		if why.Status() == 503 {
			wait = "1"
		}
		if got := res.Header.Get("Retry-After"); got != wait {
			t.Errorf("%v: Retry-After %q, want %q", why, got, wait)
		}
	}
}

// Nobody has to count refusals.
func TestARefusalWithoutACounter(t *testing.T) {
	s := serve(t, with(), func(c *settings.Config) { c.Refused = nil })
	s.w.Refuse(http1.RefusalOtherHost)
	if res, _ := s.errorOf(); res.StatusCode != 403 {
		t.Error(res.StatusCode)
	}
}

func TestHowARequestEndsWhoseClientFailed(t *testing.T) {
	for name, tc := range map[string]struct {
		err     error // of the body; nil: the client left
		status  int
		outcome policy.Outcome
		reason  string
		counted []http1.Refusal
		wait    string
	}{
		"left":          {nil, 0, policy.OutcomeClientGone, "", nil, ""},
		"too slow":      {request.ErrBodyTooSlow, 408, policy.OutcomeRequestTimeout, "request_timeout", nil, ""},
		"malformed":     {http1.RefusalBadChunk.Err(), 400, policy.OutcomeRequestBroken, "bad_chunk", []http1.Refusal{http1.RefusalBadChunk}, ""},
		"too large":     {http1.RefusalTrailersTooLarge.Err(), 431, policy.OutcomeRequestBroken, "trailers_too_large", []http1.Refusal{http1.RefusalTrailersTooLarge}, ""},
		"cut off":       {request.ErrBodyCut, 400, policy.OutcomeRequestBroken, "request_broken", nil, ""},
		"lost its slot": {request.ErrTurnedAway, 503, policy.OutcomeRefused, "no_client_slot", []http1.Refusal{http1.RefusalNoClientSlot}, "1"},
	} {
		s := serve(t, with(), nil)
		if tc.err == nil {
			s.ClientLeft()
		} else {
			s.ClientFailed(tc.err)
		}
		end := s.w.ClientError()
		if end.Status != tc.status || end.Outcome != tc.outcome {
			t.Errorf("%s: %d, %v", name, end.Status, end.Outcome)
		}
		if !slices.Equal(s.refused, tc.counted) {
			t.Errorf("%s: counted %v", name, s.refused)
		}
		if tc.status == 0 {
			if s.Wire.String() != "" || !s.w.Resets() {
				t.Errorf("%s: resets %v, %q", name, s.w.Resets(), s.Wire.String())
			}
			continue
		}
		if res, e := s.errorOf(); res.StatusCode != tc.status || e.Reason != tc.reason || res.Header.Get("Retry-After") != tc.wait || end.Reason != tc.reason {
			t.Errorf("%s: %d %+v %v, logged %q", name, res.StatusCode, e, res.Header, end.Reason)
		}
	}
}

func TestWeAreTheFinalRecipient(t *testing.T) {
	const body = "Content-Length: 3"
	for name, tc := range map[string]struct {
		request string
		drains  bool
		status  int
		keeps   bool
	}{
		"OPTIONS":             {strings.Replace(with(), "GET", "OPTIONS", 1), false, 200, true},
		"TRACE":               {strings.Replace(with(), "GET", "TRACE", 1), false, 405, true},
		"OPTIONS with a body": {strings.Replace(with(body), "GET", "OPTIONS", 1), false, 200, false},
		"TRACE in a drain":    {strings.Replace(with(), "GET", "TRACE", 1), true, 405, false},
		"one that ends":       {strings.Replace(with("Connection: close"), "GET", "OPTIONS", 1), false, 200, false},
	} {
		s := serve(t, tc.request, nil)
		if tc.drains {
			s.Process.BeginDrain(s.Process.Clock.Now())
		}
		end := s.w.MaxForwards()
		res, got := s.Response("GET")
		outcome := policy.OutcomeSuccess
		if tc.status == 405 {
			outcome = policy.OutcomeRefused
		} else if got != "" {
			t.Errorf("%s: %v %q", name, res.Header, got)
		} else {
			for key := range res.Header {
				if !slices.Contains([]string{"Allow", "Content-Length", "Date", "X-Request-Id", "X-Retryproxy-Attempts"}, key) {
					t.Errorf("%s: a header %s", name, key)
				}
			}
		}
		if end.Status != tc.status || end.Outcome != outcome || res.StatusCode != tc.status || len(res.Header["Allow"]) != 1 || s.w.KeepsConnection() != tc.keeps {
			t.Errorf("%s: %d, %v, keeps %v: %d %v", name, end.Status, end.Outcome, s.w.KeepsConnection(), res.StatusCode, res.Header)
		}
	}
}

// What the client did not get was not its outcome, unless that says more about us than that it left.
func TestAClientThatLeftDidNotGetTheError(t *testing.T) {
	gaveUp := policy.GaveUp(policy.ReasonDeadline)
	for outcome, want := range map[policy.Outcome]policy.Outcome{
		gaveUp: policy.OutcomeClientGone, policy.OutcomeFallback: policy.OutcomeClientGone,
		policy.OutcomeRefused: policy.OutcomeRefused, policy.OutcomeOverloaded: policy.OutcomeOverloaded,
	} {
		s := serve(t, with(), nil)
		s.Wire.Leave()
		end := s.w.Error(503, outcome, "why")
		if end.Status != 503 || end.Outcome != want || !s.w.Resets() || s.w.KeepsConnection() {
			t.Errorf("%v: %d, %v, resets %v", outcome, end.Status, end.Outcome, s.w.Resets())
		}
	}
}

// Whoever serves the request can end its connection: in order, or so that the response is not whole.
func TestTheConnectionCanBeEnded(t *testing.T) {
	s := serve(t, with(), nil)
	s.w.Close()
	s.w.Error(503, policy.OutcomeOverloaded, "why")
	if res, _ := s.errorOf(); !res.Close || s.w.KeepsConnection() || s.w.Resets() {
		t.Errorf("%v, keeps %v, resets %v", res.Header, s.w.KeepsConnection(), s.w.Resets())
	}
	s = serve(t, with(), nil)
	s.w.Reset()
	if s.w.KeepsConnection() || !s.w.Resets() {
		t.Errorf("keeps %v, resets %v", s.w.KeepsConnection(), s.w.Resets())
	}
}

// Nothing that a client, an upstream or the configuration changed on one response is on the next.
func TestTheNextResponseOfTheConnectionBeginsAnew(t *testing.T) {
	s := serve(t, with(), nil)
	s.w.InPlaceOfUpstream(response.FallbackUpstream)
	s.w.Asks(time.Minute)
	s.w.Close()
	s.w.Reset()
	s.w.Spliced(7)
	s.w.Error(503, policy.OutcomeOverloaded, "why")
	before := len(s.Wire.String())
	s.Next(requesttest.Get)
	s.begin()
	if s.w.BodySent() != 0 || s.w.Resets() || !s.w.KeepsConnection() || s.w.HasRetryAfter() {
		t.Errorf("sent %d, resets %v, keeps %v", s.w.BodySent(), s.w.Resets(), s.w.KeepsConnection())
	}
	s.w.Error(502, policy.OutcomeOverloaded, "why")
	second := s.Wire.String()[before:]
	for _, gone := range []string{"X-Retryproxy-Fallback", "Retry-After", "Connection", "id-1"} {
		if strings.Contains(second, gone) {
			t.Errorf("%s in %q", gone, second)
		}
	}
	if !strings.HasPrefix(second, "HTTP/1.1 502 ") || !strings.Contains(second, "X-Request-Id: ") {
		t.Errorf("%q", second)
	}
}

func TestTheConfigurationChangesOurOwnResponsesToo(t *testing.T) {
	s := serve(t, with(), func(c *settings.Config) {
		c.Default.ResponseChanges = forward.NewHeaderChanges([]http1.Header{http1.NewHeader("X-Set", "yes")}, []string{"Content-Type"})
	})
	s.w.Error(503, policy.OutcomeOverloaded, "why")
	if res, _ := s.errorOf(); res.Header.Get("X-Set") != "yes" || len(res.Header["Content-Type"]) > 0 {
		t.Error(res.Header)
	}
}

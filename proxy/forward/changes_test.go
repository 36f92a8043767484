package forward

import (
	"errors"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/wire"
)

func headersOf(lines ...string) (list []http1.Header) {
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		list = append(list, http1.NewHeader(name, value))
	}
	return list
}

func TestHeadersAreSetAndRemoved(t *testing.T) {
	request := []string{"GET / HTTP/1.1", "Host: a", "authorization: Bearer client", "Connection: X-Hop", "X-Hop: 1", "X-ENV: dev", "X-Env-2: kept", "Cookie: a", "cookie: b", "X-Debug: 1"}
	response := []string{"HTTP/1.1 200 OK", "server: secret/1.0", "Set-Cookie: a=1", "X-ENV: dev", "X-Env-2: kept", "Content-Length: 0"}
	for name, tc := range map[string]struct {
		set      []string
		remove   []string
		request  []string
		response []string
	}{
		"nothing": {request: []string{"Host: a", "authorization: Bearer client", "X-ENV: dev", "X-Env-2: kept", "Cookie: a", "cookie: b", "X-Debug: 1"},
			response: []string{"server: secret/1.0", "Set-Cookie: a=1", "X-ENV: dev", "X-Env-2: kept", "Content-Length: 0"}},
		"set": {set: []string{"X-Env: prod", "Authorization: Bearer ours", "X-New: a, b"},
			request:  []string{"Host: a", "X-Env-2: kept", "Cookie: a", "cookie: b", "X-Debug: 1", "X-Env: prod", "Authorization: Bearer ours", "X-New: a, b"},
			response: []string{"server: secret/1.0", "Set-Cookie: a=1", "X-Env-2: kept", "Content-Length: 0", "X-Env: prod", "Authorization: Bearer ours", "X-New: a, b"}},
		"set twice": {set: []string{"Set-Cookie: b=1", "Set-Cookie: c=1"}, remove: []string{"Set-Cookie"},
			request:  []string{"Host: a", "authorization: Bearer client", "X-ENV: dev", "X-Env-2: kept", "Cookie: a", "cookie: b", "X-Debug: 1", "Set-Cookie: b=1", "Set-Cookie: c=1"},
			response: []string{"server: secret/1.0", "X-ENV: dev", "X-Env-2: kept", "Content-Length: 0", "Set-Cookie: b=1", "Set-Cookie: c=1"}},
		"removed": {remove: []string{"COOKIE", "x-debug", "Server"},
			request:  []string{"Host: a", "authorization: Bearer client", "X-ENV: dev", "X-Env-2: kept"},
			response: []string{"Set-Cookie: a=1", "X-ENV: dev", "X-Env-2: kept", "Content-Length: 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			changes := NewHeaderChanges(headersOf(tc.set...), tc.remove)
			q := parseRequest(t, headerLines(request...))
			got := string(AppendRequestHeaders(nil, q, &Settings{Changes: changes}, &Peer{}, nil, nil))
			got = strings.Replace(got, "X-Forwarded-Proto: http\r\nX-Forwarded-Host: a\r\n", "", 1)
			if want := request[0] + "\r\n" + strings.Join(tc.request, "\r\n") + "\r\n"; got != want {
				t.Errorf("request: got %q\nwant %q", got, want)
			}
			r := parseResponse(t, headerLines(response...), "GET")
			got = string(AppendResponseHeaders(nil, r, &ResponseOptions{Minor: 1, Changes: changes}))
			if want := response[0] + "\r\n" + strings.Join(tc.response, "\r\n") + "\r\n\r\n"; got != want {
				t.Errorf("response: got %q\nwant %q", got, want)
			}
		})
	}
}

func TestWhatServersTakeForAHiddenHeaderIsHidden(t *testing.T) {
	changes := NewHeaderChanges(headersOf("X-Env: prod"), []string{"X-User"})
	q := parseRequest(t, headerLines("GET / HTTP/1.1", "Host: a", "X_Env: evil", "x.user: evil", "X-User_: kept", "XUser: kept", "X-Request_Id: evil"))
	got := string(AppendRequestHeaders(nil, q, &Settings{Changes: changes}, &Peer{}, nil, nil))
	if strings.Contains(got, "evil") || !strings.Contains(got, "X-User_: kept\r\nXUser: kept\r\n") {
		t.Errorf("%q", got)
	}
	trailers := headersOf("X_User: evil", "X-Kept: 1", "x-env: evil")
	if kept := changes.Trailers(trailers); len(kept) != 1 || string(kept[0].Name) != "X-Kept" || len(trailers) != 3 {
		t.Errorf("%v", kept)
	}
}

func TestAnInterimResponseHasNothingHiddenAndNothingSet(t *testing.T) {
	changes := NewHeaderChanges(headersOf("X-Env: prod"), []string{"X-Internal"})
	r := parseResponse(t, headerLines("HTTP/1.1 103 Early Hints", "Link: </a>", "X-Internal: secret", "X-Env: dev"), "GET")
	if got, want := string(AppendInformational(wire.Lines, nil, r, changes)), "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestLaterChangesReplaceEarlierOnes(t *testing.T) {
	first := NewHeaderChanges(headersOf("A: 1", "B: 2", "B: 3"), []string{"D", "C"})
	both := first.And(headersOf("b: 4", "C: 5"))
	q := parseRequest(t, headerLines("GET / HTTP/1.1", "Host: a", "A: x", "B: x", "C: x", "D: x", "E: x"))
	got := string(AppendRequestHeaders(nil, q, &Settings{Changes: both}, &Peer{}, nil, nil))
	if want := "GET / HTTP/1.1\r\nHost: a\r\nE: x\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: a\r\nA: 1\r\nb: 4\r\nC: 5\r\n"; got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

func TestHeadersOfTheProxyAreNotChanged(t *testing.T) {
	for name, want := range map[string]error{
		"host": errHost, "Idempotency-Key": errKey, "content-length": errOurs, "Transfer-Encoding": errOurs, "Connection": errOurs, "TE": errOurs, "Upgrade": errOurs,
		"X-Forwarded-For": errOurs, "Forwarded": errOurs, "Via": errOurs, "X-Request-Id": errOurs, "Traceparent": errOurs, "Expect": errOurs,
		"X-Retryproxy-Attempt": errOurs, "X-Retryproxy-Anything": errOurs, "X_Forwarded_For": errOurs,
		"Authorization": nil, "Cookie": nil, "X-Env": nil, "User-Agent": nil,
	} {
		if err := CheckRequestHeader(name); !errors.Is(err, want) {
			t.Errorf("request, %s: %v, want %v", name, err, want)
		}
	}
	for name, want := range map[string]error{
		"content-length": errOurs, "Transfer-Encoding": errOurs, "Connection": errOurs, "Trailer": errOurs, "Via": errOurs, "X-Retryproxy-Reason": errOurs, "X-Should-Retry": errOurs,
		"Server": nil, "Set-Cookie": nil, "Strict-Transport-Security": nil,
	} {
		if err := CheckResponseHeader(name); !errors.Is(err, want) {
			t.Errorf("response, %s: %v, want %v", name, err, want)
		}
	}
}

package wire

import "github.com/retryproxy/retryproxy/proxy/http1"

// Head is the header section of a request to an upstream, in the form of its wire.
type Head struct {
	Form   Form
	Fields []byte // as Lines all of it, the request line and the empty line included

	Method, Target, Authority []byte // of a Block; Authority may be empty
}

// Get returns a GET of our own in the form f. As Lines it asks for its connection to be closed.
func Get(f Form, target, host, agent string) Head {
	h := Head{Form: f, Method: []byte("GET"), Target: []byte(target), Authority: []byte(host)}
	if f == Lines {
		h.Fields = http1.AppendHeader(http1.AppendRequestLine(nil, "GET", target), "Host", host)
	}
	h.Fields = AppendHeader(f, AppendHeader(f, h.Fields, "User-Agent", agent), "Accept", "*/*")
	if f == Lines {
		h.Fields = append(h.Fields, "Connection: close\r\n\r\n"...)
	}
	return h
}

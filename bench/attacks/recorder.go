package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"

	"github.com/retryproxy/retryproxy/bench/internal/streams"
)

// record starts an upstream that takes nothing but HTTP/1.1 to the letter, and tells
// of each whole request. Anything else that comes over a connection is a finding.
func (g *smuggleStage) record(st *stage) (addr string, err error) {
	return st.listen("127.0.0.1:0", func(nc net.Conn) {
		if err := g.serve(nc); err != nil {
			g.add("the upstream was sent %v", err)
		}
	})
}

// serve answers the requests of a connection until it ends. Its error is what is no request.
func (g *smuggleStage) serve(nc net.Conn) error {
	r := bufio.NewReaderSize(nc, 128*kib)
	for {
		head, err := strictHead(r)
		if head == nil || err != nil {
			return err
		}
		req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(head)))
		if err != nil {
			return fmt.Errorf("%w: %.500q", err, head)
		}
		if strings.EqualFold(req.Header.Get("Expect"), "100-continue") {
			_, _ = io.WriteString(nc, "HTTP/1.1 100 Continue\r\n\r\n")
		}
		body, whole, err := strictBody(r, req)
		if err != nil {
			return fmt.Errorf("%w: %.500q", err, head)
		}
		if !whole {
			return nil // cut off, and nobody takes it for whole
		}
		g.took(req.RequestURI, bodyOf(body))
		answer := fmt.Sprintf("HTTP/1.1 200 OK\r\n%s: %s\r\nContent-Length: %d\r\n\r\n", askedField, req.RequestURI, len(good))
		if req.Method != http.MethodHead {
			answer += good
		}
		if _, err := io.WriteString(nc, answer); err != nil {
			return nil
		}
	}
}

// strictHead reads a head whose lines end as they should and hold nothing that ends
// one for others; nil: the connection ended before or within it.
func strictHead(r *bufio.Reader) ([]byte, error) {
	var head []byte
	for {
		line, err := r.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			return nil, fmt.Errorf("a line of more than 128 KiB")
		}
		if err != nil {
			return nil, nil
		}
		text, is := bytes.CutSuffix(line, []byte("\r\n"))
		if !is || bytes.ContainsAny(text, "\r\x00") || len(head) > 0 && len(text) > 0 && (text[0] == ' ' || text[0] == '\t') {
			return nil, fmt.Errorf("the line %.300q", line)
		}
		if head = append(head, line...); len(text) == 0 {
			return head, oneLength(head)
		}
	}
}

// oneLength: whoever reads the fields in another order finds no other.
func oneLength(head []byte) error {
	lower := bytes.ToLower(head)
	if bytes.Count(lower, []byte("\ncontent-length:"))+bytes.Count(lower, []byte("\ntransfer-encoding:")) > 1 {
		return fmt.Errorf("two lengths: %.500q", head)
	}
	return nil
}

// strictBody reads a body by the one field that says its length.
func strictBody(r *bufio.Reader, req *http.Request) (body []byte, whole bool, err error) {
	if len(req.TransferEncoding) == 0 {
		var b bytes.Buffer
		_, err := io.CopyN(&b, r, max(req.ContentLength, 0))
		return b.Bytes(), err == nil, nil
	}
	if body, err = io.ReadAll(httputil.NewChunkedReader(r)); err != nil {
		return nil, false, cutOff(err)
	}
	for { // trailers
		line, err := r.ReadString('\n')
		if err != nil {
			return nil, false, nil
		}
		if !strings.HasSuffix(line, "\r\n") {
			return nil, false, fmt.Errorf("the trailer %.300q", line)
		}
		if line == "\r\n" {
			return body, true, nil
		}
	}
}

// cutOff: the end of a connection is no finding.
func cutOff(err error) error {
	var lost *net.OpError
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.As(err, &lost) {
		return nil
	}
	return err
}

// bodyOf is how a body is written down, as streams.Reading has it.
func bodyOf(b []byte) string {
	req, _ := http.NewRequest(http.MethodPost, "/", bytes.NewReader(b))
	r, _ := streams.ReadingOf(req)
	return r.Body
}

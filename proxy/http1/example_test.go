package http1_test

import (
	"fmt"

	"github.com/retryproxy/retryproxy/proxy/http1"
)

// Bytes arrive in two pieces. Parse asks for more after the first, and leaves what follows the header section alone.
func ExampleRequest_Parse() {
	arrived := []byte("POST /orders?dry=1 HTTP/1.1\r\nHost: shop.example\r\nContent-")
	var r http1.Request
	n, err := r.Parse(arrived, http1.Limits{})
	fmt.Println(n, err)

	arrived = append(arrived, "Length: 4\r\n\r\nbody"...)
	n, err = r.Parse(arrived, http1.Limits{})
	fmt.Println(err, string(r.Method), string(r.Authority), string(r.Path), string(r.Query))
	fmt.Println(r.Body.Kind, r.Body.Length, string(arrived[n:]))
	// Output:
	// 0 <nil>
	// <nil> POST shop.example /orders dry=1
	// length 4 body
}

func ExampleRequest_Parse_refused() {
	var r http1.Request
	_, err := r.Parse([]byte("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"), http1.Limits{})
	e := err.(*http1.Error)
	fmt.Println(e.Status, e.Reason)
	// Output: 400 cl_with_te
}

func ExampleChunked_Next() {
	var c http1.Chunked
	for p := []byte("5\r\nhello\r\n6;a=b\r\n world\r\n0\r\nX-Sum: 1\r\n\r\nGET /"); !c.Done(); {
		n, data, err := c.Next(p)
		if err != nil || n == 0 {
			break // refused, or cut off
		}
		fmt.Print(string(data))
		p = p[n:]
	}
	fmt.Printf("\n%s: %s\n", c.Trailers()[0].Name, c.Trailers()[0].Value)
	// Output:
	// hello world
	// X-Sum: 1
}

package main

import (
	"strings"
	"testing"
)

// As callgrind 3.19 writes it, with a call, a recursion, an inlined file and a name used again.
const example = `# callgrind format
version: 1
events: Ir

ob=(1) /tmp/retryproxy
fl=(1) proxy/loop.go
fn=(1) github.com/retryproxy/retryproxy/proxy.(*exchange).run
10 300
+2 100
fi=(2) time/time.go
* 40
fe=(1)
cfi=(3) metrics/route.go
cfn=(2) github.com/retryproxy/retryproxy/metrics.(*Route).RequestDone
calls=20 60
+1 5000
-3 60

fn=(2)
61 200

fn=(3) github.com/retryproxy/retryproxy/proxy.(*exchange).run'2
10 80

fn=(4) github.com/retryproxy/retryproxy/proxy/http1.AppendIntField[go.shape.string]
7 20

fn=(5) 0x000000000000079d
0 20

totals: 820
`

func TestCountsAreThoseOfCallgrind(t *testing.T) {
	c := &counts{requests: 10, byFunction: map[string]int64{}}
	if err := c.parse(strings.NewReader(example)); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	if err := c.tell(&said, 2); err != nil {
		t.Fatal(err)
	}
	want := `82  user instructions a request, of 10 requests

by package
58  proxy
20  metrics

by function
58  proxy.(*exchange).run
20  metrics.(*Route).RequestDone
`
	if said.String() != want {
		t.Errorf("it says\n%s\nwant\n%s", said.String(), want)
	}
}

package rig

import (
	"io"
	"net"
	"slices"
	"testing"
	"time"
)

func TestFindingsOfOneKindAreToldAFewTimes(t *testing.T) {
	var f Findings
	for i := range 100 {
		f.Add("a: %d", i)
	}
	f.Add("b: once")
	f.Count("answers", 2)
	f.AtLeast(2, "answers")
	f.AtLeast(3, "answers")
	f.Longest("wait", 2)
	if got := f.Longest("wait", 1); got != 2 {
		t.Errorf("the longest is %d", got)
	}
	all := f.All()
	if len(all) != mostPerKind+3 || all[len(all)-1] != "a: 100 in all" || f.N() != 102 || !slices.Contains(f.Kinds(), "b") {
		t.Errorf("%d: %q", f.N(), all)
	}
}

func TestABedIsUndoneBackwards(t *testing.T) {
	var b Bed
	var done []int
	for i := range 3 {
		b.Later(func() { done = append(done, i) })
	}
	b.End()
	b.End()
	if !slices.Equal(done, []int{2, 1, 0}) {
		t.Error(done)
	}
}

func TestARecorderKnowsTheBytesOfEachRequest(t *testing.T) {
	const one, two = "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", "GET /b HTTP/1.1\r\nHost: h\r\n\r\n"
	var got []string
	all := make(chan string, 1)
	r := &Recorder{Begin: func() (Take, func([]byte)) {
		return func(m Message, err error) (string, bool) {
			got = append(got, string(m.Raw))
			return "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", len(got) < 2
		}, func(b []byte) { all <- string(b) }
	}}
	var b Bed
	defer b.End()
	c, err := net.Dial("tcp", b.Record(r))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte(one + two + "more")); err != nil {
		t.Fatal(err)
	}
	if kept := <-all; kept != one+two+"more" || !slices.Equal(got, []string{one, two}) {
		t.Errorf("kept %q, requests %q", kept, got)
	}
	if r.Wait(10 * time.Second); r.Each(func(net.Conn) {}) != 0 {
		t.Error("the connection is still open")
	}
}

func TestAnExchangeEndsItsSideAndReadsOn(t *testing.T) {
	var b Bed
	defer b.End()
	at, err := b.Listen("127.0.0.1:0", func(c net.Conn) {
		got, _ := io.ReadAll(c) // to the client's end
		_, _ = c.Write(append(got, '!'))
	})
	if err != nil {
		t.Fatal(err)
	}
	if all, _, err := Exchange(at, []byte("hello"), 20*time.Millisecond); string(all) != "hello!" || err != nil {
		t.Errorf("%q, %v", all, err)
	}
}

func TestStatusesLeaveOutInterimOnes(t *testing.T) {
	responses := "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n" + "HTTP/1.1 103 x\r\n\r\nHTTP/1.1 404 x\r\nContent-Length: 2\r\n\r\nno"
	if got := Statuses([]byte(responses), "HEAD", "POST"); !slices.Equal(got, []int{200, 404}) {
		t.Error(got)
	}
}

func TestABucketSaysWhenItHasEnough(t *testing.T) {
	now := time.Now()
	b := NewBucket(10, 10, now)
	b.Level = 0
	if d := b.Until(5); d != 500*time.Millisecond {
		t.Errorf("%v until 5", d)
	}
	b.Fill(now.Add(500 * time.Millisecond))
	if d := b.Until(5); d != 0 || b.Until(b.Capacity) != 500*time.Millisecond {
		t.Errorf("%v until 5, %v until full", d, b.Until(b.Capacity))
	}
	if b.Fill(now.Add(time.Hour)); b.Level != 10 {
		t.Errorf("level %v", b.Level)
	}
}

package route

import (
	"fmt"
	"strconv"
	"testing"
)

// many builds a table of n routes, half by path and half by host and path.
func many(t testing.TB, n int) *Table[string] {
	t.Helper()
	rules := make([]Rule[string], n)
	for i := range rules {
		m := Match{Path: fmt.Sprintf("/service%d/v1/*", i)}
		if i%2 == 1 {
			m.Host = fmt.Sprintf("h%d.example.com", i)
		}
		rules[i] = rule("", m)
	}
	return build(t, rules...)
}

// request appends the host and the path that the i-th route of many is for.
func request(host, path []byte, i int) (h, p []byte) {
	host = append(strconv.AppendInt(append(host, 'h'), int64(i), 10), ".example.com"...)
	return host, append(strconv.AppendInt(append(path, "/service"...), int64(i), 10), "/v1/items/42"...)
}

func TestLookupsDoNotGrowWithTheNumberOfRoutes(t *testing.T) {
	most := func(n int) int {
		table, most := many(t, n), 0
		for i := range n {
			q := query{method: []byte("GET")}
			q.host, q.path = request(nil, nil, i)
			if e := table.index.find("", &q); e != ref(i+1) {
				t.Fatalf("%s%s: found %v", q.host, q.path, e)
			}
			most = max(most, q.lookups)
		}
		return most
	}
	small, large := most(10), most(10000)
	if large > small || small < 3 {
		t.Errorf("%d lookups among 10 routes, %d among 10000", small, large)
	}
}

func TestWildcardsCostNoMoreThanTheirLabels(t *testing.T) {
	table := build(t, rule("a", Match{Host: "*.b.example.com"}), rule("b", Match{Host: "*.com"}))
	q := query{host: []byte("a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.org"), path: []byte("/")}
	if table.index.find("", &q); q.lookups > 5 {
		t.Errorf("%d lookups", q.lookups)
	}
}

func TestAPathCostsTwoLookupsForEachSegment(t *testing.T) {
	table := build(t, rule("deep", Match{Path: "/a/b/c/d/e/f/g/h"}), rule("top", Match{Path: "/a/*"}))
	q := query{path: []byte("/a/b/c/d/e/f/g/x")}
	if table.index.find("", &q); q.lookups > 2*8 {
		t.Errorf("%d lookups for 8 segments", q.lookups)
	}
}

func BenchmarkFind(b *testing.B) {
	for _, n := range []int{1, 10, 100, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			table := many(b, n)
			host, path, method := make([]byte, 0, 64), make([]byte, 0, 64), []byte("GET")
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				i = (i + 7919) % n // a prime, so that neighbours in memory are not asked in turn
				host, path = request(host[:0], path[:0], i)
				table.Find("", host, path, method, nil)
			}
		})
	}
}

func BenchmarkAmbiguous(b *testing.B) {
	table := apiTable(b)
	for _, p := range []string{"/api/v1/items/42-of-many.json", "/files/caf%C3%A9/%20x", "/files/a/../b", "/files/https%3A%2F%2Fexample.com%2Fa"} {
		b.Run(p[1:], func(b *testing.B) {
			path := []byte(p)
			b.ReportAllocs()
			for b.Loop() {
				table.Ambiguous("", nil, path, nil, nil, "")
			}
		})
	}
}

// blue is a header that has any name with the value "blue".
type blue struct{ value []byte }

func (b blue) Lookup(string) ([]byte, bool) { return b.value, true }

func TestNothingIsAllocated(t *testing.T) {
	table := build(t,
		rule("a", Match{Host: "*.Example.com", Path: "/a/b/*", Header: "X-Tenant=blue", Methods: []string{"GET"}}),
		rule("b", Match{Host: "a.example.com:80", Path: "/a/café"}),
		rule("c", Match{Listen: ":9"}),
	)
	host, path, encoded, odd, method := []byte("A.Example.com:80"), []byte("/a/b/c"), []byte("/a/caf%C3%A9"), []byte("/a/b/../c//x"), []byte("GET")
	var h HeaderLookup = blue{[]byte("blue")}
	table.Ambiguous("", host, odd, method, h, "/a") // fills the pool
	if n := testing.AllocsPerRun(100, func() {
		table.Find("", host, path, method, h)
		table.Find("", host, encoded, method, nil)
		table.Find(":9", host, path, method, nil)
		table.Ambiguous("", host, path, method, h, "")
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

package interop

import (
	"fmt"
	"hash/crc64"
	"io"
	"net/http"
	"os"
	"strconv"
	"testing"
)

// large is what is moved each way: 2 GiB; INTEROP_MIB sets less.
func large() int64 {
	if n, err := strconv.Atoi(os.Getenv("INTEROP_MIB")); err == nil {
		return int64(n) << 20
	}
	return 2 << 30
}

// table is that of the checksum by which bodies are compared.
var table = crc64.MakeTable(crc64.ECMA)

func checksum(t *testing.T, r io.Reader) (uint64, int64) {
	t.Helper()
	h := crc64.New(table)
	n, err := io.CopyBuffer(struct{ io.Writer }{h}, r, make([]byte, 256<<10))
	if err != nil {
		t.Errorf("after %d bytes: %v", n, err)
	}
	return h.Sum64(), n
}

// A body of 2 GiB passes each way whole, and the proxy's memory does not grow with it.
func TestLargeBodies(t *testing.T) {
	n := large()
	addr := newBed(t).Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
			_, _ = io.CopyBuffer(struct{ io.Writer }{w}, &pattern{n: n}, make([]byte, 256<<10))
			return
		}
		sum, got := checksum(t, r.Body)
		_, _ = fmt.Fprint(w, sum, got)
	}))
	p := startProxy(t, "http://"+addr)
	before, err := p.Level()
	if err != nil {
		t.Fatal(err)
	}
	want, _ := checksum(t, &pattern{n: n})
	res, err := http.Get("http://" + p.Addr + "/")
	if err != nil {
		t.Fatal(err)
	}
	if sum, got := checksum(t, res.Body); sum != want || got != n {
		t.Errorf("download: %d bytes, checksum %x, want %d and %x", got, sum, n, want)
	}
	_ = res.Body.Close()
	req, _ := http.NewRequest(http.MethodPut, "http://"+p.Addr+"/", io.NopCloser(&pattern{n: n}))
	req.ContentLength = n
	if res, err = http.DefaultClient.Do(req); err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if string(b) != fmt.Sprint(want, n) {
		t.Errorf("upload: the upstream got %s, want %d %d", b, want, n)
	}
	after, err := p.Level()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d MiB each way; memory %d KiB before, %d at most", n>>20, before.RSS>>10, after.Peak>>10)
	if after.Peak > before.RSS+16<<20 {
		t.Errorf("memory grew from %d KiB to %d", before.RSS>>10, after.Peak>>10)
	}
}

package page

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// ask sends a request with that id and returns the id in the response.
func (p *proxy) ask(t *testing.T, path, id string) string {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, "http://"+p.listen+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if id != "" {
		r.Header.Set("X-Request-Id", id)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // only a test
	_, _ = io.Copy(io.Discard, response.Body)
	return response.Header.Get("X-Request-Id")
}

func TestFailedRowHasTheRequestIDAndTheError(t *testing.T) {
	t.Parallel()
	u := startUpstream(t)
	p := startProxy(t, environment(u)...)
	made := p.ask(t, "/broken/made", "")
	own := p.ask(t, "/broken/own", "order=7/a:b")
	if len(made) != 32 || own != "order=7/a:b" {
		t.Fatalf("ids %q and %q", made, own)
	}
	b := open(t, p, 1280, 900, "light")
	b.await("two failed requests", `document.querySelectorAll('#failed tbody tr').length === 2`)
	for path, id := range map[string]string{"/broken/made": made, "/broken/own": own} {
		row := is[string](b, `[...document.querySelectorAll('#failed tbody tr')].find((r) => r.textContent.includes('`+path+`')).textContent`)
		if !strings.Contains(row, id) || !strings.Contains(row, u.address+": status 503") {
			t.Errorf("expected id %s and the error in %q", id, row)
		}
	}
}

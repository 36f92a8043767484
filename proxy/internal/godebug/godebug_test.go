package godebug

import "testing"

func TestTheLastSettingOfANameCounts(t *testing.T) {
	for all, want := range map[string]bool{
		"":                            false,
		"http2client=0":               true,
		"http2client=1":               false,
		"x=1,http2client=0,y=2":       true,
		"http2client=0,http2client=1": false,
		"http2client=1,http2client=0": true,
		"xhttp2client=0":              false,
		"http2client":                 false,
		"http2server=0":               false,
		"http2client=0#c0ffee":        true,
	} {
		if got := off(all, HTTP2Client); got != want {
			t.Errorf("%q: %v", all, got)
		}
	}
}

func TestOffReadsTheEnvironment(t *testing.T) {
	t.Setenv("GODEBUG", HTTP2Client+"=0")
	if !Off(HTTP2Client) || Off("http2server") {
		t.Error(Off(HTTP2Client), Off("http2server"))
	}
}

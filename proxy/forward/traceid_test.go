package forward

import "testing"

func TestTraceIDOfAValidTraceparentOnly(t *testing.T) {
	const id = "0af7651916cd43dd8448eb211c80319c"
	for parent, want := range map[string]string{
		"00-" + id + "-b7ad6b7169203331-01":                       id,
		"01-" + id + "-b7ad6b7169203331-01-later":                 id,
		"00-" + id + "-b7ad6b7169203331":                          "",
		"00-" + id[1:] + "x-b7ad6b7169203331-01":                  "",
		"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01": "",
		"00-00000000000000000000000000000000-b7ad6b7169203331-01": "",
		"": "", "00-\"},{\"forged\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa": "",
	} {
		if got := TraceID([]byte(parent)); got != want {
			t.Errorf("%s: %q, expected %q", parent, got, want)
		}
	}
}

package buildinfo

import (
	"runtime/debug"
	"testing"
)

// go install .../cmd/retryproxy@latest sets no version at link time.
func TestAnInstalledProgramHasTheVersionOfItsModule(t *testing.T) {
	for _, tc := range []struct {
		main debug.Module
		want string
	}{
		{debug.Module{Version: "v1.2.3", Sum: "h1:x"}, "v1.2.3"},
		{debug.Module{Version: "(devel)"}, "dev"},
		{debug.Module{Version: "v0.0.0-20261124000000-0123456789ab+dirty"}, "dev"}, // of a working tree
	} {
		v := Build{Version: "dev", Revision: "unknown"}
		v.add(&debug.BuildInfo{Main: tc.main})
		if v.Version != tc.want || v.Revision != "unknown" {
			t.Errorf("%+v: %+v, want %s", tc.main, v, tc.want)
		}
	}
	v := Build{Version: "dev", Revision: "unknown"}
	v.add(&debug.BuildInfo{Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "true"}}})
	if v.Revision != "0123456789ab+" {
		t.Errorf("%+v", v)
	}
}

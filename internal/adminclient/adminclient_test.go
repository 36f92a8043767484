package adminclient

import "testing"

func TestReachable(t *testing.T) {
	for listen, want := range map[string]string{
		":9797": "127.0.0.1:9797", "0.0.0.0:1": "127.0.0.1:1", "[::]:1": "[::1]:1", "10.0.0.1:1": "10.0.0.1:1", "localhost:1": "localhost:1",
	} {
		if got := reachable(listen); got != want {
			t.Errorf("%s: %s, want %s", listen, got, want)
		}
	}
}

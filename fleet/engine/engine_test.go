package engine

import (
	"reflect"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]Engine{
		"redis://cache":                         {Network: "tcp", Addrs: []string{"cache:6379"}},
		"redis://cache:6380/3":                  {Network: "tcp", Addrs: []string{"cache:6380"}, DB: 3},
		"rediss://me%40here@cache/":             {Network: "tcp", TLS: true, Addrs: []string{"cache:6379"}, User: "me@here"},
		"redis://[::1]:7000/1":                  {Network: "tcp", Addrs: []string{"[::1]:7000"}, DB: 1},
		"redis://[::1]":                         {Network: "tcp", Addrs: []string{"[::1]:6379"}},
		"redis+sentinel://a,b:1/mymaster":       {Kind: Sentinel, Network: "tcp", Addrs: []string{"a:26379", "b:1"}, Master: "mymaster"},
		"rediss+sentinel://u@a/m/2":             {Kind: Sentinel, Network: "tcp", TLS: true, Addrs: []string{"a:26379"}, Master: "m", User: "u", DB: 2},
		"redis+cluster://10.0.0.1,10.0.0.2:700": {Kind: Cluster, Network: "tcp", Addrs: []string{"10.0.0.1:6379", "10.0.0.2:700"}},
		"unix:/run/redis.sock":                  {Network: "unix", Addrs: []string{"/run/redis.sock"}},
		"rediss://cache?scope=shop&password_file=/run/p&ca=/ca.pem&cert=/tls.crt": {Network: "tcp", TLS: true, Addrs: []string{"cache:6379"}, Scope: "shop", PasswordFile: "/run/p", CA: "/ca.pem", Cert: "/tls.crt"},
		"redis://cache/3?password_file=%2Fa%20b":                                  {Network: "tcp", Addrs: []string{"cache:6379"}, DB: 3, PasswordFile: "/a b"},
		"unix:/run/redis.sock?scope=shop":                                         {Network: "unix", Addrs: []string{"/run/redis.sock"}, Scope: "shop"},
	} {
		want.text = text
		if want.Scope == "" {
			want.Scope = "default"
		}
		if got, err := Parse(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v; want %+v", text, got, err, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "scheme",
		"cache:6379":                     "scheme",
		"http://cache":                   "scheme",
		"redis+mesh://cache":             "scheme",
		"valkeys://cache":                "scheme",
		"redis://":                       "not host",
		"redis://:6379":                  "not host",
		"redis://a/b":                    `database "b"`,
		"redis://a/-1":                   "database",
		"redis://a/0/1":                  "database",
		"redis://a/99999999999":          "database",
		"redis://a:0":                    "port",
		"redis://a:65536":                "port",
		"redis://a b":                    "not host",
		"redis://a?db=1":                 `unknown option "db"`,
		"redis://a?password=secret":      "password_file",
		"redis://a?secret":               "unknown option; the options are scope, password_file",
		"redis://a?scope=":               "needs one value",
		"redis://a?scope=a&scope=b":      "needs one value",
		"redis://a?ca=/ca.pem":           "needs TLS",
		"unix:/run/redis.sock?cert=/c":   "needs TLS",
		"redis://a?scope=%zz":            "escape",
		"redis://a,b":                    "several",
		"redis://user:secret@a":          "password_file",
		"redis://:secret@a":              "password_file",
		"redis://%zz@a":                  "escape",
		"redis+sentinel://a":             "NAME",
		"redis+sentinel://a/":            "NAME",
		"redis+cluster://a/1":            "one database",
		"unix:run/redis.sock":            "begin with /",
		"redis+cluster://a,,b":           "not host",
		"redis+cluster://a" + many(",a"): "64",
	} {
		got, err := Parse(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q in it", text, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: the error tells the password: %v", text, err)
		}
		if got.Set() {
			t.Errorf("%q: set all the same", text)
		}
	}
}

func many(s string) string { return strings.Repeat(s, maxAddrs) }

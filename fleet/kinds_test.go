package fleet

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/fleet/engine"
	"github.com/retryproxy/retryproxy/fleet/enginetest"
	"github.com/retryproxy/retryproxy/policy/budget"
	"github.com/retryproxy/retryproxy/policy/ratelimit"
)

// kinds are the topologies of an engine, each with a function that starts a real one.
var kinds = map[string]func(t *testing.T) (url string){
	"one server": func(t *testing.T) string { return enginetest.StartTCP(t).URL },
	"over TLS": func(t *testing.T) string {
		cert, key := selfSigned(t)
		options := "?ca=" + cert + "&cert=" + cert
		port := enginetest.FreePort(t)
		enginetest.StartTCP(t, "--tls-port", fmt.Sprint(port), "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert)
		return fmt.Sprintf("rediss://127.0.0.1:%d", port) + options
	},
	"a cluster of three": func(t *testing.T) string {
		return enginetest.ClusterURL(enginetest.StartCluster(t, 3))
	},
	"a cluster": func(t *testing.T) string {
		s := enginetest.StartTCP(t, "--cluster-enabled", "yes", "--cluster-port", fmt.Sprint(enginetest.FreePort(t)))
		s.Do("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
		eventually(t, "a cluster", func() bool { return strings.Contains(fmt.Sprint(s.Do("CLUSTER", "INFO")), "cluster_state:ok") })
		return strings.Replace(s.URL, "redis://", "redis+cluster://", 1)
	},
	"behind a sentinel": func(t *testing.T) string {
		return enginetest.StartTCP(t).StartSentinel(t, "cache").URL
	},
}

// Everything is shared through every kind of engine: in a cluster the keys of each script must be
// in one slot.
func TestAllIsSharedThroughEveryKindOfEngine(t *testing.T) {
	for name, start := range kinds {
		t.Run(name, func(t *testing.T) {
			url := start(t)
			e, err := engine.Parse(url)
			if err != nil {
				t.Fatal(err)
			}
			o := Options{Engine: e}
			a, b := joinWith(t, o), joinWith(t, o)
			a.awaitListening()
			b.awaitListening()
			for key := range uint64(8) { // of several slots
				sharesAll(t, a, b, key+1)
			}
		})
	}
}

func sharesAll(t *testing.T, a, b *process, key uint64) {
	t.Helper()
	a.RateLimitPauseBegan(key, time.Minute)
	eventually(t, "pause learnt", func() bool { return b.pause(key) > 0 })
	if g, ok := a.requestLease(ratelimit.LeaseRequest{Key: key, Gap: time.Millisecond, Want: 5}); !ok || g.Slots == 0 {
		t.Errorf("key %d: lease %+v, %v", key, g, ok)
	}
	if _, ok := b.settleOne(budget.Report{Key: key, Config: budget.Default(), Requests: 100}); !ok {
		t.Errorf("key %d: no level of the budget", key)
	}
}

// selfSigned makes a self-signed certificate for 127.0.0.1.
func selfSigned(t *testing.T) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, kind string, b []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("cert.pem", "CERTIFICATE", der), write("cert.key", "PRIVATE KEY", pkcs8)
}

package config

import "testing"

func TestClientsAndRetryBufferFitTheMemoryLimit(t *testing.T) {
	const mib = 1 << 20
	for _, limit := range []int64{24 * mib, 64 * mib, 128 * mib, 256 * mib, 4096 * mib} {
		soft := limit * 9 / 10
		clients, replay := clientMemory(soft), replayBytes(64*mib, soft)
		if base := min(int64(baseMemory), soft/2); base+clients+replay > soft {
			t.Errorf("%d MiB: %d bytes for clients and %d for retries do not fit", limit/mib, clients, replay)
		}
		if clients < leastClients {
			t.Errorf("%d MiB: %d bytes for clients", limit/mib, clients)
		}
	}
	if clientMemory(0) != 0 || replayBytes(64*mib, 0) != 64*mib {
		t.Error("bounded without a limit")
	}
	if n := replayBytes(1*mib, 1024*mib); n != 1*mib {
		t.Errorf("%d bytes for retries, want what the settings say", n)
	}
}

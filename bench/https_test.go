package main

import "testing"

// The cost of a message over HTTPS, alone and in a batch.
func TestHTTPSCosts(t *testing.T) {
	p, err := StartHTTPSPeer(limit(t), HTTPSPeers[0])
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	const window, size = 2000, 100
	for _, row := range []struct {
		sender                int
		n                     int
		allocs, writes, reads float64 // upper limits per message
	}{
		{1, 2000, 60, 1.1, 1.1},     // one request per message: 48 allocations, most of them in net/http
		{2, 200_000, 1, 0.05, 0.01}, // batches of 500: 7 TLS records out, one in, per batch
	} {
		name, calls := HTTPSSenders[row.sender].Name, new(Calls)
		s, err := HTTPSSenders[row.sender].Open(p, window, size, calls)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Send(limit(t), row.n/10); err != nil { // warms up
			t.Fatal(err)
		}
		writesBefore, readsBefore := calls.Writes.Load(), calls.Reads.Load()
		f, err := Measure(limit(t), s, row.n)
		if err != nil {
			t.Fatal(err)
		}
		writes, reads := float64(calls.Writes.Load()-writesBefore)/float64(row.n),
			float64(calls.Reads.Load()-readsBefore)/float64(row.n)
		if f.Allocs > row.allocs || writes > row.writes || reads > row.reads {
			t.Errorf("%s: %.2f allocations, %.4f writes to the socket and %.4f reads for a message, want %v, %v and %v at most",
				name, f.Allocs, writes, reads, row.allocs, row.writes, row.reads)
		}
		t.Logf("%s: %.2f allocations, %.4f writes, %.4f reads", name, f.Allocs, writes, reads)
		s.Close()
	}
}

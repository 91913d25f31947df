package main

import "testing"

// The cost of a registration over each protocol: two requests, and a bounded number of bytes.
func TestRegistrationCosts(t *testing.T) {
	p, err := StartProvisioningPeer(limit(t))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	const most = 8 << 10
	for i, r := range Registrars {
		got, err := p.Register(limit(t), i, "dev-1", 0)
		if err != nil {
			t.Fatalf("%s: %v", r.Name, err)
		}
		if got.Requests != 2 || got.Sent > most || got.Received > most {
			t.Errorf("%s: %+v; want 2 requests and at most %d bytes in each direction", r.Name, got, most)
		}
		t.Logf("%s: %+v", r.Name, got)
	}
}

package sntp_test

import (
	"context"
	"log"
	"math/rand/v2"
	"net"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/sntp"
)

// The credentials use a clock that is set while the client already waits for it.
func Example() {
	creds, err := device.ParseConnectionString("HostName=hub.example.com;DeviceId=board;SharedAccessKey=c2VjcmV0")
	if err != nil {
		log.Fatal(err)
	}
	var dialer net.Dialer // a board gives the UDP sockets of its modem
	dial := func(ctx context.Context, server string) (sntp.Conn, error) {
		return dialer.DialContext(ctx, "udp", server)
	}
	clock, err := sntp.New(dial, &sntp.Options{
		Servers: []string{"0.pool.ntp.org:123", "1.pool.ntp.org:123", "2.pool.ntp.org:123"},
		Quorum:  2,
		Rand:    rand.Uint64,
	})
	if err != nil {
		log.Fatal(err)
	}
	creds.Now = clock.Now
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { _ = clock.Run(ctx) }()
	// device.New(creds, ...) and Start
}

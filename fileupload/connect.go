package fileupload

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/internal/httpguard"
	"github.com/hubline-iot/hubline/transport"
)

// idleTimeout is short because a device pays for the connections that it keeps alive.
const idleTimeout = 30 * time.Second

// A service is the HTTP client side of the hub or of storage.
type service struct {
	*http.Transport
	answered atomic.Bool // an answer of any status has arrived
}

// newHubService returns a service whose connections to the hub are dialed as a transport dials
// them.
func (u *Uploader) newHubService() *service {
	return u.service(func(ctx context.Context, _ string) (net.Conn, error) {
		d := u.opt.toHub()
		cert, err := d.ClientCertificate(ctx, u.creds)
		if err != nil {
			return nil, err
		}
		conn, _, err := d.Dial(ctx, u.creds, cert)
		return conn, err
	})
}

// newStorageService returns a service whose connections go to the hub's storage.
func (u *Uploader) newStorageService() *service {
	return u.service(func(ctx context.Context, addr string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		conn, _, err := u.opt.toStorage(addr).Dial(ctx, &transport.Credentials{Host: host, Now: u.creds.Now}, nil)
		return conn, err
	})
}

// service returns a service that speaks HTTP/1.1 over connections from open.
func (u *Uploader) service(open func(ctx context.Context, addr string) (net.Conn, error)) *service {
	dial := func(ctx context.Context, _, addr string) (net.Conn, error) {
		// net/http may continue a dial for a later request
		ctx, cancel := context.WithTimeoutCause(ctx, u.opt.RequestTimeout, errSlow)
		defer cancel()
		defer context.AfterFunc(u.closed, cancel)()
		conn, err := open(ctx, addr)
		if err != nil {
			return nil, protocol.Error(err)
		}
		return httpguard.New(conn, maxAnswer), nil
	}
	_, chunk := u.progressLimits()
	return &service{Transport: &http.Transport{
		DialContext: dial, DialTLSContext: dial, WriteBufferSize: min(chunk, 4<<10), // buffered data counts as sent
		DisableCompression: true, MaxIdleConnsPerHost: maxParallel, IdleConnTimeout: idleTimeout,
		MaxResponseHeaderBytes: maxAnswer,
	}}
}

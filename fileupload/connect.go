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

// Connections that nobody uses are closed soon: a device pays for those that it keeps alive.
const idleTimeout = 30 * time.Second

// A service is the hub or storage: how to get there.
type service struct {
	*http.Transport
	spoke atomic.Bool // there was an answer, whatever it said
}

// throughHub makes connections to the hub, as a transport does.
func (u *Uploader) throughHub() *service {
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

// throughStorage makes connections to where the hub keeps its files.
func (u *Uploader) throughStorage() *service {
	return u.service(func(ctx context.Context, addr string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		conn, _, err := u.opt.toStorage(addr).Dial(ctx, &transport.Credentials{Host: host, Now: u.creds.Now}, nil)
		return conn, err
	})
}

// service speaks HTTP/1.1 over what open makes.
func (u *Uploader) service(open func(ctx context.Context, addr string) (net.Conn, error)) *service {
	dial := func(ctx context.Context, _, addr string) (net.Conn, error) {
		// package net/http may let a dial live on for a later request
		ctx, cancel := context.WithTimeoutCause(ctx, u.opt.RequestTimeout, errSlow)
		defer cancel()
		defer context.AfterFunc(u.closed, cancel)()
		conn, err := open(ctx, addr)
		if err != nil {
			return nil, protocol.Error(err)
		}
		return httpguard.New(conn, maxAnswer), nil
	}
	_, piece := u.pace()
	return &service{Transport: &http.Transport{
		DialContext: dial, DialTLSContext: dial, WriteBufferSize: min(piece, 4<<10), // what waits in it has not gone
		DisableCompression: true, MaxIdleConnsPerHost: maxParallel, IdleConnTimeout: idleTimeout,
		MaxResponseHeaderBytes: maxAnswer,
	}}
}

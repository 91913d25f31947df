package main

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"

	mochi "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/listeners"
	"github.com/mochi-mqtt/server/v2/packets"
)

// serveMochi runs the broker mochi in a child process until the parent ends it.
func serveMochi(in *json.Decoder, secure bool, say func(any)) error {
	server, a, err := newMochi(secure, new(allowAll))
	if err != nil {
		return err
	}
	defer server.Close()
	say(a)
	if err := in.Decode(new(any)); err != io.EOF {
		return errSettingsOnly(err)
	}
	return nil
}

// allowAll lets every client do everything.
type allowAll struct{ mochi.HookBase }

func (*allowAll) Provides(b byte) bool {
	return b == mochi.OnConnectAuthenticate || b == mochi.OnACLCheck
}

func (*allowAll) OnConnectAuthenticate(*mochi.Client, packets.Packet) bool { return true }

func (*allowAll) OnACLCheck(*mochi.Client, string, bool) bool { return true }

// newMochi starts the broker on a loopback port.
func newMochi(secure bool, hooks ...mochi.Hook) (*mochi.Server, *access, error) {
	l, err := net.Listen("tcp", anyPort)
	if err != nil {
		return nil, nil, err
	}
	a := foreign(l.Addr().String(), nil)
	if secure {
		cert, certPEM, _, err := certificate()
		if err != nil {
			return nil, nil, errors.Join(err, l.Close())
		}
		a.CA, l = certPEM, tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{cert}})
	}
	server := mochi.New(&mochi.Options{Logger: slog.New(slog.DiscardHandler)})
	for _, h := range hooks {
		err = errors.Join(err, server.AddHook(h, nil))
	}
	err = errors.Join(err, server.AddListener(listeners.NewNet("mqtt", l)), server.Serve())
	if err != nil {
		return nil, nil, errors.Join(err, server.Close())
	}
	return server, a, nil
}

// Command standin stands in for the modem at a board's serial line, on a PC: it speaks the protocol
// of board.Modem over TCP, makes the board's connections with TLS, and tells it the time. With it
// the program of docs/boards-guide.md runs without any hardware, against a hub or a testhub.
//
//	go run ./cross/arm/standin                                               for the hub that the board names
//	go run ./cross/arm/standin -hub 127.0.0.1:8883 -roots testhub-ca.pem     for a testhub on this machine
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"time"

	"github.com/hubline-iot/hubline/cross/arm/internal/modems"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:7000", "`address` of the line, for the variable LINE of the program")
	hub := flag.String("hub", "", "`address` of the hub (default port 8883 of the host that the board names)")
	roots := flag.String("roots", "", "`file` of the certificates to trust in place of the system's, in PEM")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *listen, *hub, *roots); err != nil {
		fmt.Fprintln(os.Stderr, "standin:", err)
		os.Exit(1)
	}
}

// run serves one board after the other until ctx ends.
func run(ctx context.Context, address, hub, roots string) error {
	trust, err := readRoots(roots)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	fmt.Println("the line is at", listener.Addr())
	for {
		line, err := listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		end := context.AfterFunc(ctx, func() { _ = line.Close() })
		modem := &modems.Line{Port: line, Now: time.Now, Dial: dial(hub, trust)}
		if err := modem.Serve(); !errors.Is(err, io.EOF) {
			fmt.Println("the board's line ended:", err)
		}
		end()
		_ = line.Close() // it has ended
	}
}

// dial returns the function that connects for a board, and prints what it does.
func dial(hub string, trust *x509.CertPool) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, host string) (net.Conn, error) {
		address := hub
		if address == "" {
			address = net.JoinHostPort(host, "8883")
		}
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		d := &tls.Dialer{Config: &tls.Config{ServerName: host, RootCAs: trust, MinVersion: tls.VersionTLS12}}
		conn, err := d.DialContext(ctx, network, address)
		if err != nil {
			fmt.Printf("no connection with %s at %s: %v\n", host, address, err)
			return nil, err
		}
		fmt.Printf("connected with %s at %s\n", host, address)
		return conn, nil
	}
}

// readRoots returns the certificates of a file; nil without one: the system's.
func readRoots(name string) (*x509.CertPool, error) {
	if name == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("flag -roots: %w", err)
	}
	trust := x509.NewCertPool()
	if !trust.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("flag -roots: %s has no certificate in PEM", name)
	}
	return trust, nil
}

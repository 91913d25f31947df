package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// ErrMissing is the error of a peer that is not installed.
var ErrMissing = errors.New("not installed")

// mosquittoPath returns the path of the broker.
func mosquittoPath() (string, error) {
	for _, name := range []string{"mosquitto", "/usr/sbin/mosquitto"} { // Debian's is not in a user's PATH
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("mosquitto: %w; Debian's package is called mosquitto", ErrMissing)
}

// mosquitto runs the broker on a loopback port, with or without TLS.
func mosquitto(ctx context.Context, secure bool) (*Peer, error) {
	path, err := mosquittoPath()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "hubline-bench-")
	if err != nil {
		return nil, err
	}
	p, err := startMosquitto(ctx, path, dir, secure)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("mosquitto: %w", err), os.RemoveAll(dir))
	}
	stop := p.close
	p.close = func() error { return errors.Join(stop(), os.RemoveAll(dir)) }
	return p, nil
}

func startMosquitto(ctx context.Context, path, dir string, secure bool) (*Peer, error) {
	free, err := net.Listen("tcp", "127.0.0.1:0") // the broker cannot choose a free port
	if err != nil {
		return nil, err
	}
	addr := free.Addr().(*net.TCPAddr)
	_ = free.Close()
	config := fmt.Sprintf("user root\n"+ // started as root, it would switch to a user that cannot read the files here
		"persistence false\nmax_inflight_messages 0\n"+
		"allow_anonymous true\nset_tcp_nodelay true\nlog_dest stderr\nlog_type error\nlog_type "+
		"warning\nlog_type information\nconnection_messages false\n"+
		"listener %d 127.0.0.1\n", addr.Port)
	file := func(name string, content []byte) string {
		p := filepath.Join(dir, name)
		err = errors.Join(err, os.WriteFile(p, content, 0o600))
		return p
	}
	var ca []byte
	if secure {
		_, cert, key, err := certificate()
		if err != nil {
			return nil, err
		}
		ca = cert
		config += fmt.Sprintf("certfile %s\nkeyfile %s\n", file("cert.pem", cert), file("key.pem", key))
	}
	configFile := file("mosquitto.conf", []byte(config))
	if err != nil {
		return nil, err
	}

	ctx, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, path, "-c", configFile)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second // after that it is killed
	log, err := cmd.StderrPipe()
	if err != nil {
		cancel()
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, err
	}
	ended := make(chan struct{})
	stop := func() error {
		cancel()
		<-ended
		if err := cmd.Wait(); err != nil && ctx.Err() == nil {
			return err
		}
		return nil
	}
	lines := bufio.NewReader(log)
	var said bytes.Buffer
	for {
		line, err := lines.ReadString('\n')
		said.WriteString(line)
		if err != nil {
			close(ended)
			_ = stop()
			return nil, fmt.Errorf("it ended: %s", said.Bytes())
		}
		if strings.Contains(line, " running") { // and listening
			break
		}
	}
	go func() { // ends with the process
		defer close(ended)
		_, _ = io.Copy(io.Discard, lines)
	}()
	return &Peer{Name: "mosquitto", access: *foreign(addr.String(), ca), close: stop}, nil
}

// MosquittoVersion returns the broker's version text, empty if it is not installed.
func MosquittoVersion() string {
	path, err := mosquittoPath()
	if err != nil {
		return ""
	}
	help, _ := exec.Command(path, "-h").Output() // its status is not 0
	first, _, _ := strings.Cut(string(help), "\n")
	return first
}

// Command linux is telemetry for Linux boards, from ARMv5 gateways to routers: one static binary
// that reads a number from a file, such as a thermometer's in /sys, and sends it to an IoT hub over
// MQTT with TLS.
//
//	CGO_ENABLED=0 GOOS=linux GOARCH=arm GOARM=6 go build -trimpath -ldflags "-s -w" \
//	    -o hubline-telemetry ./cross/arm/linux
//
// It is designed for systemd (see hubline-telemetry.service): it reports when it is ready, feeds
// the watchdog while there is progress, and flushes within TimeoutStopSec on SIGTERM. It runs
// without systemd too. It reads the connection string from a file, never from the command line,
// which every user of the board can read.
//
// The transport is package mqtt; build with -tags paho for the Eclipse client, which adds 1 MB to
// the binary.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"math"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
)

func main() {
	var s settings
	flag.StringVar(&s.connect, "connect", "", "file with the device's connection string; empty: connection-string in "+
		"$CREDENTIALS_DIRECTORY, where systemd puts it")
	flag.StringVar(&s.source, "source", "/sys/class/thermal/thermal_zone0/temp", "file with a number to send")
	flag.DurationVar(&s.interval, "interval", time.Minute, "time between readings")
	flag.StringVar(&s.addr, "addr", "", "host:port to connect to instead of the hub's, such as a gateway's")
	flag.StringVar(&s.outbox, "outbox", "", "folder in which readings wait for the hub, so that a power cut loses none; "+
		"empty: in memory. 64 MiB at most, then the oldest give way")
	flag.StringVar(&s.roots, "roots", "",
		"file with the certificates (PEM) to trust; empty: the system's. Small images often have none")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	if err := run(ctx, s); err != nil {
		os.Stderr.WriteString("hubline-telemetry: " + err.Error() + "\n")
		os.Exit(1)
	}
}

// settings are the flags.
type settings struct {
	connect, source, addr, roots, outbox string
	interval                             time.Duration
}

// flushTime is the time for the outbox after SIGTERM. Closing takes at most 15 s; together they
// stay below the unit's TimeoutStopSec.
const flushTime = 10 * time.Second

// run sends readings until ctx ends.
func run(ctx context.Context, s settings) error {
	if s.interval <= 0 {
		return errors.New("flag -interval: give a positive time")
	}
	creds, err := credentials(s.connect)
	if err != nil {
		return err
	}
	roots, err := trust(s.roots)
	if err != nil {
		return err
	}
	options := &device.Options{
		OnStatus:        say,
		MaxMessages:     1024,
		MaxBytes:        256 << 10,
		Overflow:        device.OverflowDropOldest,
		TryAgainAfter:   10 * time.Minute, // nobody is there to restart it
		ReconnectSpread: 5 * time.Second,
	}
	if s.outbox != "" {
		options.Overflow = device.OverflowBlock // the files drop the oldest readings
	}
	client, err := device.New(creds, engine(creds, s.addr, roots), options)
	if err != nil {
		return err
	}
	defer client.Close()
	out, err := openOut(s.outbox, client)
	if err != nil {
		return err
	}
	defer out.close()
	if err := client.Start(); err != nil {
		return err
	}
	service := newService()
	service.tell("READY=1")
	if err := sample(ctx, client, out, service, s); err != nil {
		return err
	}
	service.tell("STOPPING=1")
	flush, cancel := context.WithTimeout(context.Background(), flushTime)
	defer cancel()
	return errors.Join(out.flush(flush), out.close(), client.Close())
}

// sample takes a reading each interval and feeds the watchdog, until ctx ends.
func sample(ctx context.Context, client *device.Client, out *out, service *service, s settings) error {
	next := time.NewTicker(s.interval)
	defer next.Stop()
	feed := time.NewTicker(service.feedEvery)
	defer feed.Stop()
	trouble := ""
	// numbers restart at 1 with each start; consumers detect duplicates by the id
	life := strconv.FormatUint(rand.Uint64(), 36) + "-"
	for n := uint64(1); ; {
		body, err := reading(s.source, n)
		if err == nil {
			m := &transport.Message{ID: life + strconv.FormatUint(n, 10), ContentType: "application/json",
				ContentEncoding: "utf-8", Created: time.Now(), Body: body}
			n++
			if err = out.put(ctx, m); err != nil && ctx.Err() != nil {
				return nil
			}
		}
		switch { // sensors disappear and return, and full disks get space again; earlier readings must still reach the hub
		case err == nil:
			trouble = ""
		case err.Error() != trouble:
			trouble = err.Error()
			os.Stderr.WriteString("no reading: " + trouble + "\n")
		}
		for due := false; !due; {
			select {
			case <-ctx.Done():
				return nil
			case <-feed.C:
				service.feed(client)
			case <-next.C:
				due = true
			}
		}
	}
}

// reading returns the body of message n, in JSON.
func reading(source string, n uint64) ([]byte, error) {
	text, err := os.ReadFile(source)
	if err != nil {
		return nil, errors.New("flag -source: " + err.Error())
	}
	b := append(make([]byte, 0, 64), `{"n":`...)
	b = strconv.AppendUint(b, n, 10)
	b = append(b, `,"value":`...)
	// Reformatted, because some numbers of Go are invalid in JSON: +5, 0x1p4, NaN.
	number := strings.TrimSpace(string(text))
	if whole, err := strconv.ParseInt(number, 10, 64); err == nil {
		b = strconv.AppendInt(b, whole, 10)
	} else if v, err := strconv.ParseFloat(number, 64); err == nil && !math.IsNaN(v) && !math.IsInf(v, 0) {
		b = strconv.AppendFloat(b, v, 'g', -1, 64)
	} else {
		return nil, errors.New("flag -source: " + source + " does not hold a decimal number")
	}
	return append(b, '}'), nil
}

// credentials reads the connection string.
func credentials(path string) (*transport.Credentials, error) {
	if path == "" {
		dir := os.Getenv("CREDENTIALS_DIRECTORY")
		if dir == "" {
			return nil, errors.New("flag -connect: give a file with the device's connection string")
		}
		path = filepath.Join(dir, "connection-string")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, errors.New("flag -connect: " + err.Error())
	}
	return device.ParseConnectionString(string(text))
}

// trust reads the trusted certificates; nil means the system's.
func trust(path string) (*tls.Config, error) {
	if path == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, errors.New("flag -roots: " + err.Error())
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, errors.New("flag -roots: " + path + " has no certificate in PEM")
	}
	return &tls.Config{RootCAs: pool}, nil
}

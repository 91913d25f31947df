package arm

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// sizes are the upper limits of a stripped binary for Linux on ARMv6, in bytes; those of
// microcontrollers are in boards_test.go. The size grows in steps of 64 KB. Raise a number only in
// the change that explains why.
var sizes = []struct {
	name string
	tags string // of the Linux board's program
	main string // or another program
	most int64
}{
	{"plain TCP", "", plainMain, 3_000_000},
	{"with TLS", "", "", 5_705_000},
	{"paho with TLS", "paho", "", 6_760_000},
	{"everything", "", everythingMain, 9_150_000},
}

func TestLinuxSize(t *testing.T) {
	if raceDetector {
		t.Skip("the run without -race has this test")
	}
	long(t)
	watch(t)
	for _, s := range sizes {
		t.Run(s.name, func(t *testing.T) {
			folder := t.TempDir()
			binary := filepath.Join(folder, "program")
			args := []string{"build", "-trimpath", "-ldflags", "-s -w", "-o", binary}
			if s.main == "" {
				args = append(args, "-tags", s.tags, "./cross/arm/linux")
			} else {
				args = append(args, "-overlay", overlay(t, folder, s.main), "./cross/arm/sized")
			}
			run(t, root, []string{"CGO_ENABLED=0", "GOOS=linux", "GOARCH=arm", "GOARM=6"}, "go", args...)
			info, err := os.Stat(binary)
			if err != nil {
				t.Fatal(err)
			}
			if info.Size() > s.most {
				t.Errorf("%d bytes, want %d at most", info.Size(), s.most)
			}
			t.Logf("%d bytes of %d", info.Size(), s.most)
		})
	}
}

// overlay adds a program to the module as ./cross/arm/sized.
func overlay(t *testing.T, folder, text string) string {
	t.Helper()
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	source, list := filepath.Join(folder, "main.go"), filepath.Join(folder, "overlay.json")
	write(t, source, []byte(text))
	b, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(here, "sized", "main.go"): source}})
	if err != nil {
		t.Fatal(err)
	}
	write(t, list, b)
	return list
}

// plainMain is telemetry through a gateway on the same network, without TLS.
const plainMain = `package main

import (
	"context"
	"net"
	"os"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/engine"
)

func main() {
	creds, err := device.ParseConnectionString(os.Getenv("CONNECT"))
	if err != nil {
		os.Exit(2)
	}
	var d net.Dialer
	dial := func(ctx context.Context, _ *transport.Credentials) (engine.Conn, error) {
		return d.DialContext(ctx, "tcp", os.Getenv("GATEWAY"))
	}
	client, err := device.New(creds, engine.New(dial, nil), nil)
	if err != nil {
		os.Exit(2)
	}
	ctx, hello := context.Background(), &transport.Message{Body: []byte("hello")}
	if client.Open(ctx) != nil || client.Send(ctx, hello) != nil || client.Close() != nil {
		os.Exit(1)
	}
}
`

// everythingMain is a gateway that uses all features: each protocol, plain and over WebSocket,
// through a proxy; files as outbox, file upload, twin, methods and a log.
const everythingMain = `package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/fileupload"
	"github.com/hubline-iot/hubline/observe"
	"github.com/hubline-iot/hubline/outbox"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
	"github.com/hubline-iot/hubline/transport/http"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/mqtt/paho"
	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/hubline-iot/hubline/transport/netproxy"
	"github.com/hubline-iot/hubline/transport/websocket"
	"github.com/hubline-iot/hubline/twin"
)

func main() {
	ctx := context.Background()
	creds, err := device.ParseConnectionString(os.Getenv("CONNECT"))
	check(err)
	dial, err := netproxy.New(os.Getenv("PROXY"), nil)
	check(err)
	all := map[string]transport.Transport{
		"mqtt": mqtt.New(&mqtt.Options{Network: netopt.Options{Dial: dial}}),
		"mqtt-ws": mqtt.New(&mqtt.Options{Network: netopt.Options{Tunnel: websocket.MQTT(nil)}}),
		"paho": paho.New(nil),
		"amqp": amqp.New(nil),
		"amqp-ws": amqp.New(&amqp.Options{Network: netopt.Options{Tunnel: websocket.AMQP(nil)}}),
		"amqp-shared": amqp.NewMux(nil), "http": http.New(nil),
	}
	options := new(device.Options)
	observe.Log(options, slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	client, err := device.New(creds, all[os.Args[1]], options)
	check(err)
	q, err := outbox.Open("outbox", nil)
	check(err)
	go q.Run(ctx, client)
	check(q.Put(ctx, &transport.Message{Body: []byte("kept")}))
	client.HandleDesired(func(ctx context.Context, d device.Desired) {
		wishes, err := twin.Properties(d)
		check(err)
		var patch twin.Patch
		for _, w := range wishes {
			patch.Answer(w, twin.Answer{Status: twin.StatusOK})
		}
		body, err := patch.JSON()
		check(err)
		_, err = client.PatchReported(ctx, body)
		check(err)
	})
	check(client.HandleMethod("reboot", func(context.Context, *device.MethodCall) (int, []byte) { return 200, nil }))
	check(client.Open(ctx))
	check(client.Send(ctx, &transport.Message{Body: []byte("hello")}))
	u, err := fileupload.New(creds, nil)
	check(err)
	_, err = u.Upload(ctx, "log.txt", os.Stdin, -1)
	check(err)
	check(client.Close())
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
`

package arm

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// price is a row of the guide's table of prices.
type price struct {
	feature string
	over    string // the row whose program has all but the feature; empty: a program of its own
	folder  string // of the program, or empty:
	text    string // of the program
	tags    string
}

const (
	leastFirmware = "the smallest firmware: readings"
	leastClient   = "a client and nothing else"
	topicClient   = "a client with a topic map, for a broker"
	nextClient    = "a client of a hub with the MQTT v5 profile, which has `nexthub.Hub`"
	serialMain    = "the firmware of `board/serial`"
	selfUpdate    = "a program that only updates itself: `update/agent`, `dpsupdate`, `handler` and provisioning"
)

// prices are the features whose price the guide tells.
var prices = []price{
	{leastFirmware, "", "", pricedFirmware("", "", ""), ""},
	{"`Status`", leastFirmware, "", pricedFirmware("\"github.com/hubline-iot/hubline/device\"",
		"Status: func(s device.Status) { println(s.State.String(), s.Reason.String()) },", ""), ""},
	{"`Command`", leastFirmware, "", pricedFirmware("", "Command: func(b []byte) { println(string(b)) },", ""), ""},
	{"`Feed` and `RebootAfter`", leastFirmware, "",
		pricedFirmware("", "Feed: func() { println(1) }, RebootAfter: time.Hour,", ""), ""},
	{"a modem with AT commands, in place of `board.Modem`", leastFirmware, "",
		priceModem.Replace(pricedFirmware("\"github.com/hubline-iot/hubline/cross/arm/board/atmodem\"", "", "")), ""},
	{"`Store`, with `flashlog`", leastFirmware, "", pricedFirmware(
		"\"github.com/hubline-iot/hubline/cross/arm/board/flashlog\"", "Store: store(),", priceMemory+priceStore), ""},
	{"a clock by `sntp`, in place of the modem's", leastFirmware, "", priceClock.Replace(pricedFirmware(
		"\"github.com/hubline-iot/hubline/sntp\"", "", priceServer)), ""},
	{"`update`, with `edsign`", leastFirmware, "", pricedFirmware("\"github.com/hubline-iot/hubline/update\"\n"+
		"\"github.com/hubline-iot/hubline/update/edsign\"", "Command: download,", priceMemory+priceUpdate), ""},
	{serialMain, "", "cross/arm/board/serial", "", ""},
	{"provisioning", serialMain, "cross/arm/board/serial", "", "provisioning"},
	{selfUpdate, "", "", pricedAgent(""), ""},
	{"`update/adusign`, in place of a function", selfUpdate, "", pricedAgent("adusign.Production().Verify"), ""},
	{leastClient, "", "", clientProbe("", pricedSession("HubMessages", "")), ""},
	{"`HandleMethod`", leastClient, "", clientProbe(`
	_ = client.HandleMethod("reboot", func(context.Context, *device.MethodCall) (int, []byte) { return 200, nil })`,
		pricedSession("HubTwinAndMethods", "")), ""},
	{"`HandleDesired` and `PatchReported`", leastClient, "", clientProbe(`
	client.HandleDesired(func(ctx context.Context, d device.Desired) {
		_, err := client.PatchReported(ctx, d.JSON)
		println(err == nil)
	})`, pricedSession("HubTwinAndMethods", "")), ""},
	{topicClient, "", "", clientProbe("", pricedTopics("")), ""},
	{"MQTT 5", topicClient, "", clientProbe("", pricedTopics("Protocol: engine.MQTT5(nil), ")), ""},
	{nextClient, "", "", nextProbe(""), ""},
	{"`HandleMethod`, `HandleDesired` and `PatchReported`", nextClient, "", nextProbe(handlers), ""},
}

// nextProbe is a client of a hub with the MQTT v5 profile: certificates sign it in.
func nextProbe(setUp string) string {
	return priceNext.Replace(clientProbe(setUp, `&engine.Options{ReadBuffer: 512, WriteBuffer: 1024,
		Dialect: &nexthub.Hub{Random: func(p []byte) error { return errors.New("no random numbers") }}}`))
}

// priceNext puts the dialect of such a hub in place of another, without a token.
var priceNext = strings.NewReplacer("mqtt/dialect", "mqtt/nexthub", `,
		Token: func(context.Context) (transport.Token, error) {
			return transport.Token{Text: transport.Hide("x")}, nil
		}}`, "}")

func pricedSession(dialect, more string) string {
	return "&engine.Options{ReadBuffer: 512, WriteBuffer: 1024, " + more + "Dialect: dialect." + dialect + "}"
}

func pricedTopics(more string) string {
	return "&engine.Options{ReadBuffer: 512, WriteBuffer: 1024, " + more +
		"Dialect: &dialect.Topics{Telemetry: \"site/{device}/up\"}}"
}

// pricedFirmware is a firmware with some fields of board.Config.
func pricedFirmware(imports, fields, more string) string {
	return fmt.Sprintf(`package main

import (
	"context"
	"time"

	"github.com/hubline-iot/hubline/cross/arm/board"
	%s
)

type line struct{}

var first byte

func (line) Read(p []byte) int  { p[0] = first; return int(first) }
func (line) Write(p []byte) int { first = p[0]; return len(p) }
func (line) Pause()             { time.Sleep(time.Millisecond) }

func main() {
	modem := board.NewModem(line{})
	modem.SetClock(time.Second)
	firmware, err := board.New(board.Config{
		Host: "hub.example.test", DeviceID: "board-1", Sign: board.Signer([]byte("key")), Dial: modem.Dial, Now: modem.Now,
		Read: func(b []byte) []byte { return append(b, 'x') },
		%s
	})
	if err != nil {
		println(err.Error())
		return
	}
	println(firmware.Run(context.Background()).Error())
}
%s`, imports, fields, more)
}

// priceMemory is a flash that the compiler does not know.
const priceMemory = `
type memory struct{ line }

func (memory) ReadAt(p []byte, _ int64) (int, error)  { p[0] = first; return len(p), nil }
func (memory) WriteAt(p []byte, _ int64) (int, error) { first = p[0]; return len(p), nil }
func (memory) EraseBlocks(start, _ int64) error       { first = byte(start); return nil }
func (memory) WriteBlockSize() int64                  { return 4 }
func (memory) EraseBlockSize() int64                  { return 4096 }
func (memory) Size() int64                            { return 1 << 17 }
`

const priceStore = `
func store() board.Store {
	log, err := flashlog.New(memory{}, nil)
	if err != nil {
		println(err.Error())
	}
	return log
}
`

// priceUpdate takes a manifest as a command and an image from the serial line.
const priceUpdate = `
func (l line) ReadAt(_ context.Context, p []byte, _ int64) error {
	l.Read(p)
	return nil
}

func download(manifest []byte) {
	key := make([]byte, 32)
	key[0] = first
	u, err := update.Open(&update.Options{Layout: update.Layout{Flash: memory{}, Slots: [2]update.Slot{{2, 8}, {10, 8}}},
		Model: "roof-sensor", Verify: edsign.Verifier(key)})
	if err == nil {
		err = u.Download(context.Background(), manifest, line{})
	}
	if err == nil {
		err = u.Confirm()
	}
	println(err == nil)
}
`

// pricedAgent is a program that updates itself. verify is the function that verifies manifests.
func pricedAgent(verify string) string {
	imports := "\"github.com/hubline-iot/hubline/update/adusign\""
	if verify == "" {
		imports, verify = "", "func(m []byte, s string) error { println(len(m), s); return nil }"
	}
	return fmt.Sprintf(`package main

import (
	"context"
	"time"

	"github.com/hubline-iot/hubline/cross/arm/board"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpsengine"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/engine"
	"github.com/hubline-iot/hubline/update"
	"github.com/hubline-iot/hubline/update/agent"
	"github.com/hubline-iot/hubline/update/dpsupdate"
	"github.com/hubline-iot/hubline/update/handler"
	"github.com/hubline-iot/hubline/update/httprange"
	%s
)

type line struct{}

var first byte

func (line) Read(p []byte) int  { p[0] = first; return int(first) }
func (line) Write(p []byte) int { first = p[0]; return len(p) }

func dial(context.Context, *transport.Credentials) (engine.Conn, error) { return server{}, nil }

func main() {
	client, _ := provisioning.New(&provisioning.Identity{Endpoint: "dps.example.test", IDScope: "0ne00000001",
		RegistrationID: "board-1", Sign: board.Signer([]byte("key")), Now: time.Now}, dpsengine.New(dial, nil), nil)
	service, _ := dpsupdate.New(client, nil)
	store, _ := update.NewStore(memory{}, update.Slot{First: 18, Blocks: 4})
	u, _ := update.Open(&update.Options{Version: 1,
		Layout: update.Layout{Flash: memory{}, Slots: [2]update.Slot{{2, 8}, {10, 8}}}})
	a, _ := agent.New(&agent.Options{Service: service, Store: store, Verify: %s,
		Handlers: map[string]agent.Handler{"": &handler.Slots{Updater: u, Healthy: func(ctx context.Context) error {
			_, err := client.Register(ctx)
			return err
		}}},
		Fetch: &httprange.Fetcher{Dial: func(context.Context, string, bool) (httprange.Conn, error) { return server{}, nil }},
		Properties: agent.Properties{{Name: "model", Value: "Sensor"}}})
	println(a.Run(context.Background()).Error())
}
`, imports, verify) + priceMemory + priceServer
}

// priceServer is a time server.
const priceServer = `
type server struct{}

func (server) Read(p []byte) (int, error)        { return line{}.Read(p), nil }
func (server) Write(p []byte) (int, error)       { return line{}.Write(p), nil }
func (server) Close() error                      { return nil }
func (server) SetReadDeadline(t time.Time) error { return nil }
`

// priceClock puts a clock from a time server in place of the modem's.
var priceClock = strings.NewReplacer("modem.SetClock(time.Second)", `clock, err := sntp.New(
		func(context.Context, string) (sntp.Conn, error) { return server{}, nil },
		&sntp.Options{Servers: []string{"a"}, Rand: func() uint64 { return uint64(first) }})
	if err != nil || clock.Sync(context.Background()) != nil {
		println("no time")
		return
	}`, "modem.Now", "clock.Now")

// priceModem puts a modem with AT commands in place of board.Modem.
var priceModem = strings.NewReplacer("modem := board.NewModem(line{})", `modem, err := atmodem.New(atmodem.Config{
		Port: line{}, Dialect: atmodem.BG9x, Host: "hub.example.test", CA: "ca.pem"})
	if err != nil {
		println(err.Error())
		return
	}`, "SetClock(time.Second)", "SetClock(context.Background())")

var updatePrices = flag.Bool("prices", false, "write the prices of features into the guide")

// priceTolerance is how much flash and RAM of a row may differ from the guide's: TinyGo's versions
// differ.
const priceTolerance = 400

// The guide's table of prices is right.
func TestPrices(t *testing.T) {
	tinyGo(t)
	watch(t)
	page, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	folder := boardModule(t, nil)
	table := "\n| feature | more than | flash, bytes | static RAM, bytes |\n|--|--|--|--|\n"
	sizes := map[string][2]int{}
	for i, p := range prices {
		path, flags := p.folder, identity
		if path == "" {
			path, flags = "probe/price"+strconv.Itoa(i), ""
			write(t, filepath.Join(folder, path, "main.go"), []byte(p.text))
		}
		if p.tags != "" {
			flags = provisioningScope + flags
		}
		out := run(t, folder, nil, "tinygo", "build", "-target", "cortex-m-qemu", "-panic=trap", "-stack-size="+stackSize,
			"-tags", p.tags, "-ldflags", flags, "-size", "short", "-o", filepath.Join(t.TempDir(), "price.elf"), "./"+path)
		flash, ram := sizesOf(t, out)
		sizes[p.feature] = [2]int{flash, ram}
		flash, ram = flash-sizes[p.over][0], ram-sizes[p.over][1]
		t.Logf("%s: %d bytes of flash, %d of static RAM", p.feature, flash, ram)
		row := fmt.Sprintf("| %s | %s | ", p.feature, p.over)
		table += fmt.Sprintf("%s%d | %d |\n", row, flash, ram)
		m := regexp.MustCompile(regexp.QuoteMeta(row) + `(-?\d+) \| (-?\d+) \|`).FindSubmatch(page)
		if m == nil {
			t.Errorf("the guide does not tell the price of %s: %d and %d bytes", p.feature, flash, ram)
			continue
		}
		for j, price := range []int{flash, ram} {
			if told, _ := strconv.Atoi(string(m[j+1])); max(told-price, price-told) > priceTolerance {
				t.Errorf("the price of %s is %d bytes, and the guide says %d; -prices writes it", p.feature, price, told)
			}
		}
	}
	if *updatePrices {
		before, after, _ := bytes.Cut(page, []byte("<!-- prices -->"))
		_, after, _ = bytes.Cut(after, []byte("<!-- end -->"))
		write(t, guide, []byte(string(before)+"<!-- prices -->"+table+"<!-- end -->"+string(after)))
	}
}

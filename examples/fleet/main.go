// Command fleet is a load of real clients: numbered devices of an enrollment group, each with its
// own connection, queue and retry policy, that send messages at a steady rate. Processes share
// nothing: each takes a range of the numbers, so that any engine that runs numbered copies of a
// program runs a fleet. docs/fleets.md shows it with Kubernetes and systemd.
//
// The variable HUBLINE_GROUP_KEY has the group key. The key of a device is derived from it, as the
// provisioning service does, so no process needs a list of devices. The hub must know them: devices
// of that group that have registered, or, for a testhub, those that -list prints. With -provision
// the devices register first.
//
// SIGTERM, Ctrl-C or the end of -duration stops the messages. What was accepted is flushed, and one
// line of JSON has the counts. The exit status is 0 only if the hub acknowledged every message.
//
//	export HUBLINE_GROUP_KEY=$(head -c 32 /dev/urandom | base64)
//	go run ./examples/fleet -count 200 -list > devices.json
//	go run ./cmd/testhub -free -devices devices.json
//	go run ./examples/fleet -count 200 -hub $HUB                            all of them, for a minute
//	JOB_COMPLETION_INDEX=3 go run ./examples/fleet -count 200 -per-job 50 -hub $HUB    numbers 150 to 199
package main

import (
	"context"
	"flag"
	"os"
	"time"

	"github.com/hubline-iot/hubline/examples/internal/setup"
)

// settings are the flags.
type settings struct {
	devices   devices
	fleet     int // the devices of all processes
	perJob    int
	list      bool
	testhub   string
	provision string
	transport string
	shared    int
	policy    string
	spread    time.Duration
	dials     int
	dialGap   time.Duration
	rate      float64
	size      int
	faults    faults
	duration  time.Duration
	flush     time.Duration
	ledger    string
}

// defaultFlush is less than the time that the engines' files give a process to end.
const defaultFlush = 30 * time.Second

// maxCut keeps random multiples of -cut from an overflow.
const maxCut = 1000 * time.Hour

func main() {
	var s settings
	flag.StringVar(&s.devices.host, "host", "localhost", "the hub's `name`")
	flag.StringVar(&s.devices.prefix, "prefix", "fleet-", "`beginning` of the devices' ids; their numbers follow")
	flag.IntVar(&s.devices.first, "first", 0, "the `number` of the first device")
	flag.IntVar(&s.devices.count, "count", 100, "how many devices the fleet has")
	flag.IntVar(&s.perJob, "per-job", 0, "run only this `part` of them, the one with the number in the variable "+
		"JOB_COMPLETION_INDEX; 0: all")
	flag.BoolVar(&s.list, "list", false, "print the devices with their keys, as a testhub's file of devices, and stop")
	flag.StringVar(&s.testhub, "hub", "", "`address` of a testhub's control API; empty: the hub is at -host, and the "+
		"system trusts its certificate")
	flag.StringVar(&s.transport, "transport", "mqtt", "what carries the messages: mqtt, amqp (devices "+
		"share connections), amqp-ws or http")
	flag.IntVar(&s.shared, "shared", 100, "how many devices share a connection over amqp, 1 to 1000")
	flag.StringVar(&s.provision, "provision", "", "register the devices first, with the provisioning service of that ID "+
		"`scope`; of the testhub, if there is one")
	flag.StringVar(&s.policy, "policy", "default", "`rules` for retries: none, or a name that go run ./cmd/fleet -list "+
		"prints")
	flag.DurationVar(&s.spread, "spread", -1, "ReconnectSpread; 0: none, negative: that of the rules")
	flag.IntVar(&s.dials, "dials", 20, "how many devices connect at a time")
	flag.DurationVar(&s.dialGap, "dial-gap", 0, "the least time between the beginnings of two attempts to connect")
	flag.Float64Var(&s.rate, "rate", 1, "messages of each device a second")
	flag.IntVar(&s.size, "size", 256, "bytes of a message's body")
	flag.DurationVar(&s.faults.every, "cut", 0, "the mean `time` after which each connection is cut, at random; 0: never")
	flag.DurationVar(&s.faults.away, "away", 0, "how long a device has no network after -cut")
	flag.DurationVar(&s.duration, "duration", time.Minute, "how long to send; 0: until SIGTERM or Ctrl-C")
	flag.DurationVar(&s.flush, "flush", defaultFlush, "how long to wait at the end for acknowledgements")
	flag.StringVar(&s.ledger, "ledger", "", "`file` for the ids of acknowledged messages, one a line; a file that "+
		"exists keeps what it has")
	setup.Main(0, &setup.Target{}, func(ctx context.Context) error { return run(ctx, &s) })
}

// run prints the list of devices, or sends their messages and prints the counts.
func run(ctx context.Context, s *settings) error {
	if err := s.check(); err != nil {
		return err
	}
	s.fleet = s.devices.count
	var err error
	if s.devices, err = s.devices.job(s.perJob, os.Getenv("JOB_COMPLETION_INDEX")); err != nil {
		return err
	}
	if s.devices.groupKey = os.Getenv("HUBLINE_GROUP_KEY"); s.devices.groupKey == "" {
		return setup.Usage("variable HUBLINE_GROUP_KEY is empty; set it to the group's key in base64")
	}
	if s.list {
		return s.devices.print(os.Stdout)
	}
	return load(ctx, s)
}

// check returns an error for a flag that is out of its range or has an unknown name.
func (s *settings) check() error {
	if _, err := setup.PortsOf(s.transport); err != nil {
		return err
	}
	if _, err := rulesOf(s.policy, s.devices.count); err != nil {
		return err
	}
	for _, f := range [...]struct {
		ok        bool
		name, fix string
	}{
		{s.devices.first >= 0 && s.devices.first <= maxDevices, "first", "give a number from 0 to 1000000"},
		{s.devices.count >= 1 && s.devices.count <= maxDevices, "count", "give a number from 1 to 1000000"},
		{s.perJob >= 0, "per-job", "give how many devices a process runs, or 0 for all"},
		{s.shared >= 1 && s.shared <= 1000, "shared", "give a number from 1 to 1000"},
		{s.dials >= 1, "dials", "give a number from 1"},
		{s.dialGap >= 0, "dial-gap", "give a duration from 0"},
		{s.provision == "" || s.transport != "amqp", "provision", "give another transport than amqp, whose connections " +
			"are shared"},
		{s.rate >= 0.0001 && s.rate <= 1000, "rate", "give 0.0001 to 1000 a second"},
		{s.size >= 1 && s.size <= 200_000, "size", "give 1 to 200000 bytes"},
		{s.faults.every >= 0 && s.faults.every <= maxCut, "cut", "give a duration up to 1000h, or 0 for no cuts"},
		{s.faults.away >= 0 && (s.faults.away == 0 || s.faults.every > 0), "away", "give a duration from 0, with -cut"},
		{s.duration >= 0, "duration", "give a duration, or 0 for no end"},
		{s.flush > 0, "flush", "give a duration above 0"},
	} {
		if !f.ok {
			return setup.Usage("flag -%s: the value is out of range; %s", f.name, f.fix)
		}
	}
	return nil
}

package bench

import (
	"encoding/json"
	"math/rand/v2"
	"time"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// soakAccess is what the devices and the reader need.
type soakAccess struct {
	MQTT, AMQP  access
	Policy, Key string // of the reader
}

type soakMeasure struct {
	Anon       float64
	Goroutines int
}

// soakFaults are what the hub does at random.
var soakFaults = []fault.Fault{
	{Kind: fault.RefuseConnect, For: 2 * time.Second, Times: -1},
	{Kind: fault.SwallowConnack, Times: 3},
	{Kind: fault.DropDuringPublish, Times: 5},
	{Kind: fault.DropBeforePublish, Times: 5},
	{Kind: fault.DropAfterPublish, Times: 5},
	{Kind: fault.DropAfterPuback, Times: 5},
	{Kind: fault.SlowPuback, Times: 20, Delay: 2 * time.Second},
	{Kind: fault.SwallowPuback, Times: 5},
	{Kind: fault.DuplicatePuback, Times: 5},
	{Kind: fault.StrayPuback, Times: 5},
	{Kind: fault.HalfOpen, For: 2 * time.Second},
	{Kind: fault.Throttle, For: 2 * time.Second},
	{Kind: fault.RefuseAttach, Times: 3},
	{Kind: fault.WithholdCredit, Times: 3, Delay: 3 * time.Second},
	{Kind: fault.ReleaseMessage, Times: 5},
	{Kind: fault.CloseOnMessage, Times: 3},
	{Kind: fault.DetachOnMessage, Times: 3},
	{Kind: fault.DropOnToken, Times: 3},
}

// soakChild is the hub.
func soakChild(in *json.Decoder, say func(any)) (any, error) {
	var s SoakSettings
	if err := in.Decode(&s); err != nil {
		return nil, err
	}
	hub, a, err := newHub(MQTT, s.Devices, true, s.Keep)
	if err != nil {
		return nil, err
	}
	defer hub.Close()
	policy, err := hub.AddPolicy("reader", hubdata.ServiceConnect)
	if err != nil {
		return nil, err
	}
	over, err := hub.Listen(testbroker.PortAMQPS, "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := *a
	b.Addr = over.String()
	say(soakAccess{MQTT: *a, AMQP: b, Policy: policy.Name, Key: policy.PrimaryKey})

	stop, done := make(chan struct{}), make(chan map[string]int)
	go func() { done <- disturb(hub, &s, stop) }()
	for {
		var word string
		if err := in.Decode(&word); err != nil || word == "end" {
			close(stop)
			faults := <-done
			if err != nil {
				return nil, err
			}
			say(faults)
			_ = in.Decode(&word) // until the reader has read all
			return nil, nil
		}
		l, err := measure()
		if err != nil {
			return nil, err
		}
		say(soakMeasure{l.anon, l.goroutines})
	}
}

// maxFaults is the most faults in force.
const maxFaults = 4

// disturb begins faults until stop, and returns how many of each kind. In between it cuts all
// connections.
func disturb(hub *testbroker.Hub, s *SoakSettings, stop <-chan struct{}) map[string]int {
	counts := make(map[string]int)
	var under []*testbroker.Injected // the latest ones
	defer func() {
		for _, in := range under {
			in.Remove()
		}
	}()
	rng := rand.New(rand.NewPCG(s.Seed, 0))
	tick := time.NewTicker(s.Fault)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return counts
		case <-tick.C:
		}
		n := rng.IntN(len(soakFaults) + 1)
		if n == len(soakFaults) {
			hub.Drop("")
			counts["Drop"]++
			continue
		}
		under = append(under, hub.Inject(soakFaults[n]))
		counts[soakFaults[n].Kind.String()]++
		if len(under) > maxFaults {
			under[0].Remove()
			under = under[1:]
		}
	}
}

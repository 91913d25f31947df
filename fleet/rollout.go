package fleet

import (
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
)

// Rollout is an update of all devices of a fleet: the image, the servers, and what goes wrong.
type Rollout struct {
	Name    string
	Devices int
	// Duration is the simulated time, at most 7 days.
	Duration time.Duration

	// Image is the size of the image in bytes.
	Image float64
	// Link is the file server's capacity, which the running downloads share equally, and Access the
	// capacity of each device, both in bits a second.
	Link, Access float64
	// Downloads is how many downloads the file server serves at once, up to 10,000. It refuses more
	// with a Retry-After of Busy.
	Downloads int
	Busy      time.Duration
	// Loss is the mean time after which a download loses its connection.
	Loss time.Duration

	// Requests is the number of requests a second that the update service takes, up to a minute's at
	// once. It refuses more with RetryAfter.
	Requests   float64
	RetryAfter time.Duration

	// Install is the time from the last byte until the new image has confirmed itself, and Rollback
	// the further time until the old one runs again if it does not.
	Install, Rollback time.Duration
	// Failures is the share of devices on which the new image does not confirm itself.
	Failures float64
	// Away is the share of devices that are off at the beginning. Each comes at random within Return.
	Away   float64
	Return time.Duration
}

// RolloutRules are the settings of a rollout and its devices.
type RolloutRules struct {
	Name string
	// Interval is the time between two checks of a device, and Spread the bound of a random addition.
	// Without Spread all devices check at the same moment, and retry without a random addition to the
	// delay.
	Interval, Spread time.Duration
	// Policy decides about refused requests and broken downloads. It must have no memory.
	Policy retrypolicy.Policy
	// NoResume: a download that lost its connection begins at the first byte.
	NoResume bool
	// Waves are the parts of the fleet that are offered the image one after the other. The last one
	// has a Share of 1.
	Waves []Wave
	// Stop is the share of failed devices among those of the begun waves that ends the rollout. 1: it
	// never ends.
	Stop float64
	// Withdraw: the end also removes the image from the file server. Otherwise devices with an offer
	// still download it.
	Withdraw bool
}

// Wave is a part of the fleet.
type Wave struct {
	// Share is the part of the fleet that is offered the image, earlier waves included.
	Share float64
	// The next wave begins when Pause is over since this one began, and the share Success of its
	// devices runs the new image.
	Pause   time.Duration
	Success float64
}

// RolloutResult is what a rollout shows.
type RolloutResult struct {
	Rollout, Rules string
	Seed           uint64
	Devices        int

	// Installed is the number of devices that installed the image, and Failed that of those that
	// reported that they went back to the old one.
	Installed, Failed int
	// Stopped is when the stop rule ended the rollout, or Never.
	Stopped time.Duration
	// Ended50, Ended95 and Ended100 are the times until the service knew the outcome of this share of
	// all devices, or Never.
	Ended50, Ended95, Ended100 time.Duration

	// PeakRequests and PeakFetches are the largest numbers of requests in a second to the update
	// service and to the file server.
	PeakRequests, PeakFetches int
	// Requests is the number of requests to the service until Ended95, or until the end.
	Requests int
	// Used is the share of the link's capacity that was used until Ended95, or until the end.
	Used float64
	// Sent is what the file server sent, in bytes, and Wasted the part that no device installed.
	Sent, Wasted float64
}

// Rollouts returns the declared rollouts: of a good image, which fails on one device of a thousand,
// and of a bad one, which fails on one of five. The limit of requests is the published one of
// registrations with the provisioning service; none is published for updates.
func Rollouts(devices int) []Rollout {
	good := Rollout{
		Name: "update", Devices: devices, Duration: 72 * time.Hour,
		Image: 50e6, Link: 1e9, Access: 20e6, Downloads: 1000, Busy: time.Minute, Loss: 30 * time.Minute,
		Requests: 1000.0 / 60, RetryAfter: 5 * time.Second,
		Install: 2 * time.Minute, Rollback: 10 * time.Minute, Failures: 0.001, Away: 0.05, Return: 24 * time.Hour,
	}
	bad := good
	bad.Name, bad.Failures = "update-bad", 0.2
	return []Rollout{good, bad}
}

// RolloutContenders returns the rules to compare: all devices at the same moment, spread over the
// interval of their checks, that with the image withdrawn when the rollout ends, in waves, and in
// waves without resume. docs/updates.md recommends the waves.
func RolloutContenders(interval time.Duration) []RolloutRules {
	once := RolloutRules{
		Name: "at once", Interval: interval, Waves: []Wave{{Share: 1}}, Stop: 0.05,
		Policy: retrypolicy.ExponentialBackoffWithJitter{Cmax: time.Minute},
	}
	spread := once
	spread.Name, spread.Spread = "spread", interval/4
	withdrawn := spread
	withdrawn.Name, withdrawn.Withdraw = "withdrawn", true
	waves := withdrawn
	waves.Name = "waves"
	pause := waves.Interval + waves.Spread
	waves.Waves = []Wave{{0.01, pause, 0.9}, {0.1, pause, 0.9}, {Share: 1}}
	anew := waves
	anew.Name, anew.NoResume = "no resume", true
	return []RolloutRules{once, spread, withdrawn, waves, anew}
}

package times

import "time"

const (
	// minRelease and maxRelease bound the delay before a cloud-to-device message is released. The
	// delay doubles with each delivery of the message.
	minRelease, maxRelease = time.Second, 30 * time.Second
	// lockSafe is the part of a hub's lock of a minute in which a release surely arrives.
	lockSafe = 50 * time.Second
)

// ReleaseAt returns when to release a cloud-to-device message that its handler could not handle. A
// hub delivers a released message again at once, and gives it up after ten deliveries by default.
// earlier is the number of deliveries before the one that was received at the time since.
func ReleaseAt(now, since time.Time, earlier int) time.Time {
	delay := maxRelease
	if earlier < 5 {
		delay = min(minRelease<<max(earlier, 0), maxRelease)
	}
	at := now.Add(delay)
	if end := since.Add(lockSafe); end.Before(at) {
		at = end
	}
	return at
}

package main

import (
	"encoding/json"
	"io"
	"strconv"

	"github.com/hubline-iot/hubline/examples/internal/setup"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/transport"
)

// maxDevices limits numbers of devices. It keeps their sum from an overflow.
const maxDevices = 1_000_000

// devices are the numbered devices of an enrollment group: those from first on.
type devices struct {
	host, prefix string
	groupKey     string
	first, count int
}

// job returns the part of the devices for the process with that index: perJob of them, or what is
// left for the last one. The processes need not know of each other.
func (d devices) job(perJob int, index string) (devices, error) {
	if perJob == 0 {
		return d, nil
	}
	n, err := strconv.Atoi(index)
	if err != nil || n < 0 {
		return d, setup.Usage("variable JOB_COMPLETION_INDEX: %q is not a number from 0; set it, or leave out -per-job",
			index)
	}
	jobs := (d.count-1)/perJob + 1
	if n >= jobs {
		return d, setup.Usage("variable JOB_COMPLETION_INDEX: no device is left for %d; -count %d with -per-job %d makes "+
			"%d processes, from 0", n, d.count, perJob, jobs)
	}
	d.first += n * perJob
	d.count = min(perJob, d.count-n*perJob)
	return d, nil
}

// id returns the id of the device at a position, from 0.
func (d *devices) id(i int) string { return d.prefix + strconv.Itoa(d.first+i) }

// credentials returns those of the device at a position.
func (d *devices) credentials(i int) (*transport.Credentials, error) {
	sign, err := provisioning.GroupKey(d.groupKey, d.id(i))
	if err != nil {
		return nil, err
	}
	return &transport.Credentials{Host: d.host, DeviceID: d.id(i), Sign: sign}, nil
}

// print writes the devices with their keys, as a testhub's file of devices.
func (d *devices) print(to io.Writer) error {
	type device struct {
		ID         string `json:"id"`
		PrimaryKey string `json:"primaryKey"`
	}
	all := make([]device, d.count)
	for i := range all {
		key, err := provisioning.DeriveKey(d.groupKey, d.id(i))
		if err != nil {
			return err
		}
		all[i] = device{d.id(i), key}
	}
	return json.NewEncoder(to).Encode(map[string]any{"devices": all})
}

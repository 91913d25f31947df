package servicefront

import (
	"errors"
	"fmt"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/backend"
	"github.com/hubline-iot/hubline/testbroker/internal/document"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
)

// jobKey returns a key that sorts jobs in the order of their creation.
func jobKey(number uint64) string { return fmt.Sprintf("%020d", number) }

// deviceJobs returns the members of the collection devices.jobs.
func deviceJobs(h *hub.Hub) listing {
	all := backend.Of(h).DeviceJobs()
	list := listing{keys: make([]string, len(all)), document: func(i int) document.Tree { return deviceJobOf(&all[i]) }}
	for i := range all {
		list.keys[i] = jobKey(all[i].Job.Number) + "/" + all[i].ID.String()
	}
	return list
}

// deviceJobOf returns the document of a job for one device. It consists of JSON values as package
// query takes them.
func deviceJobOf(d *backend.DeviceJob) document.Tree {
	doc := document.Tree{"deviceId": d.ID.Device, "jobId": d.Job.ID, "jobType": d.Job.Kind, "status": d.Status,
		"createdDateTimeUtc": document.TimeText(d.Created), "lastUpdatedDateTimeUtc": document.TimeText(d.Created)}
	if d.ID.Module != "" {
		doc["moduleId"] = d.ID.Module
	}
	if !d.Started.IsZero() {
		doc["startTimeUtc"], doc["lastUpdatedDateTimeUtc"] = document.TimeText(d.Started), document.TimeText(d.Started)
	}
	if !d.Ended.IsZero() {
		doc["endTimeUtc"], doc["lastUpdatedDateTimeUtc"] = document.TimeText(d.Ended), document.TimeText(d.Ended)
	}
	if d.Result != nil {
		answer := document.Tree{"status": d.Result.Status, "payload": nil}
		if v, ok := decoded(d.Result.Payload); ok {
			answer["payload"] = v
		}
		doc["outcome"] = document.Tree{"deviceMethodResponse": answer}
	}
	if e := (*hubdata.ServiceError)(nil); errors.As(d.Err, &e) {
		doc["error"] = document.Tree{"code": e.Name, "description": e.Message}
	} else if d.Err != nil {
		doc["error"] = document.Tree{"code": hub.ErrorName(hub.CodeServerError), "description": d.Err.Error()}
	}
	return doc
}

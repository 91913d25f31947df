package main

import (
	"context"
	"net/http"
	"time"
)

// An upload is a file upload with its state.
type upload struct {
	Device  string    `json:"device"`
	File    string    `json:"file"`
	State   string    `json:"state"`
	Size    int64     `json:"size"`
	Started time.Time `json:"started"`
	Expires time.Time `json:"expires"`
	// Ended, Status and Description are the result reported by the device.
	Ended       *time.Time `json:"ended,omitempty"`
	Status      int        `json:"status,omitempty"`
	Description string     `json:"description,omitempty"`
}

func (c *control) uploads(_ *call, count int) any {
	all := []upload{}
	for _, u := range lastOf(c.hub.Uploads(), count) {
		one := upload{Device: u.DeviceID, File: u.Blob, State: u.State.String(), Size: u.Size, Started: u.Started,
			Expires: u.Expires,
			Status:  u.StatusCode, Description: u.StatusDescription}
		if !u.Ended.IsZero() {
			one.Ended = &u.Ended
		}
		all = append(all, one)
	}
	return all
}

func (c *control) waitUploads(r *call) (any, *refusal) {
	count := 1
	problem := c.waits(r, func() any {
		states := make(map[string]int) // the whole list may be long
		for _, u := range c.hub.Uploads() {
			states[u.State.String()]++
		}
		return states
	}, func(ctx context.Context) error { return c.hub.WaitUploads(ctx, count) }, whole("count", 1, 1<<20, &count))
	return map[string]any{"uploads": c.uploads(r, 0)}, problem
}

func (c *control) file(r *call) (any, *refusal) {
	if problem := r.query(); problem != nil {
		return nil, problem
	}
	name := r.PathValue("file")
	b, ok := c.hub.Blob(name)
	if !ok {
		return nil, &refusal{status: http.StatusNotFound, Field: "file", Problem: name + " is not in the store",
			Fix: "GET /uploads names the files, as device/name"}
	}
	content, err := b.Bytes()
	if err != nil {
		return nil, &refusal{status: http.StatusInternalServerError, Problem: err.Error(), Fix: "upload it again"}
	}
	return struct {
		File        string `json:"file"`
		ContentType string `json:"contentType,omitempty"`
		Size        int64  `json:"size"`
		Blocks      int    `json:"blocks"`
		Version     int    `json:"version"`
		body
	}{b.Name, b.ContentType, b.Size, len(b.Blocks), b.Version, showBody(content)}, nil
}

package main

func init() {
	tables["device"] = []mutation{}
}

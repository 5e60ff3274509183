package main

// Which bytes a measurement sends, and what it reads from the answer.
//
// Every frame is built once and sent again and again with another correlation id (and, for
// a fetch, another offset), so that the cost of building it is not part of the figure.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

const (
	apiProduce      = 0
	apiFetch        = 1
	apiMetadata     = 3
	apiCreateTopics = 19

	produceVersion = 11
	fetchVersion   = 12

	correlationAt = 8 // after the frame's length, api key and version
	clientID      = "rawload"

	errorNone        = 0
	errorTopicExists = 36
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// writer appends big-endian fields to a frame; the first four bytes are its length.
type writer struct{ b []byte }

func newFrame(apiKey, apiVersion int16, flexible bool) *writer {
	w := &writer{b: make([]byte, 4, 256)}
	w.i16(apiKey)
	w.i16(apiVersion)
	w.i32(0)
	w.i16(int16(len(clientID)))
	w.b = append(w.b, clientID...)
	if flexible {
		w.uvarint(0)
	}
	return w
}

func (w *writer) i8(v int8)        { w.b = append(w.b, byte(v)) }
func (w *writer) i16(v int16)      { w.b = binary.BigEndian.AppendUint16(w.b, uint16(v)) }
func (w *writer) i32(v int32)      { w.b = binary.BigEndian.AppendUint32(w.b, uint32(v)) }
func (w *writer) i64(v int64)      { w.b = binary.BigEndian.AppendUint64(w.b, uint64(v)) }
func (w *writer) uvarint(v uint64) { w.b = binary.AppendUvarint(w.b, v) }
func (w *writer) varint(v int64)   { w.b = binary.AppendVarint(w.b, v) }
func (w *writer) compact(s string) { w.uvarint(uint64(len(s)) + 1); w.b = append(w.b, s...) }
func (w *writer) classic(s string) { w.i16(int16(len(s))); w.b = append(w.b, s...) }
func (w *writer) compactLen(n int) { w.uvarint(uint64(n) + 1) }
func (w *writer) finished() []byte {
	binary.BigEndian.PutUint32(w.b, uint32(len(w.b)-4))
	return w.b
}

// recordBatch is one uncompressed batch of format v2 with `records` values of `size` bytes.
func recordBatch(records, size int, nowMs int64) []byte {
	body := &writer{}
	value := make([]byte, size)
	for i := range value {
		value[i] = byte('a' + i%26)
	}
	for i := 0; i < records; i++ {
		record := &writer{}
		record.i8(0)
		record.varint(0)
		record.varint(int64(i))
		record.varint(-1) // no key
		record.varint(int64(size))
		record.b = append(record.b, value...)
		record.varint(0) // no headers
		body.varint(int64(len(record.b)))
		body.b = append(body.b, record.b...)
	}
	checked := &writer{}
	checked.i16(0)
	checked.i32(int32(records - 1))
	checked.i64(nowMs)
	checked.i64(nowMs)
	checked.i64(-1) // no producer id
	checked.i16(-1)
	checked.i32(-1)
	checked.i32(int32(records))
	checked.b = append(checked.b, body.b...)

	batch := &writer{}
	batch.i64(0)
	batch.i32(int32(len(checked.b) + 9))
	batch.i32(-1)
	batch.i8(2)
	batch.i32(int32(crc32.Checksum(checked.b, castagnoli)))
	batch.b = append(batch.b, checked.b...)
	return batch.b
}

func produceFrame(topic string, partition int32, acks int16, batch []byte) []byte {
	w := newFrame(apiProduce, produceVersion, true)
	w.uvarint(0) // no transactional id
	w.i16(acks)
	w.i32(30_000)
	w.compactLen(1)
	w.compact(topic)
	w.compactLen(1)
	w.i32(partition)
	w.compactLen(len(batch))
	w.b = append(w.b, batch...)
	for level := 0; level < 3; level++ {
		w.uvarint(0)
	}
	return w.finished()
}

// fetchFrame also returns where its fetch offset lies, to be overwritten for every request.
func fetchFrame(topic string, partition int32, maxBytes int32) ([]byte, int) {
	w := newFrame(apiFetch, fetchVersion, true)
	w.i32(-1)  // a consumer, not a replica
	w.i32(500) // max wait ms
	w.i32(1)   // min bytes
	w.i32(maxBytes)
	w.i8(0)  // read uncommitted
	w.i32(0) // no session
	w.i32(-1)
	w.compactLen(1)
	w.compact(topic)
	w.compactLen(1)
	w.i32(partition)
	w.i32(-1) // leader epoch unknown
	offsetAt := len(w.b)
	w.i64(0)
	w.i32(-1)
	w.i64(-1)
	w.i32(maxBytes)
	w.uvarint(0)
	w.uvarint(0)
	w.compactLen(0) // forgotten topics
	w.compact("")
	w.uvarint(0)
	return w.finished(), offsetAt
}

func createTopicFrame(topic string, partitions int32) []byte {
	w := newFrame(apiCreateTopics, 4, false)
	w.i32(1)
	w.classic(topic)
	w.i32(partitions)
	w.i16(1)
	w.i32(0)
	w.i32(0)
	w.i32(30_000)
	w.i8(0)
	return w.finished()
}

func createTopicError(body []byte) error {
	r := reader{b: body}
	r.skip(8)
	r.skip(int(r.i16()))
	if code := r.i16(); code != errorNone && code != errorTopicExists {
		return fmt.Errorf("CreateTopics answers error %d", code)
	}
	return r.err
}

func metadataFrame(topic string) []byte {
	w := newFrame(apiMetadata, 4, false)
	w.i32(1)
	w.classic(topic)
	w.i8(0)
	return w.finished()
}

// leadersKnown says whether Metadata knows the topic and every partition of it has a leader.
func leadersKnown(body []byte) bool {
	r := reader{b: body}
	r.skip(4)
	for n := r.i32(); n > 0 && r.err == nil; n-- {
		r.skip(4)
		r.skip(int(r.i16()))
		r.skip(4)
		if length := r.i16(); length > 0 {
			r.skip(int(length))
		}
	}
	if length := r.i16(); length > 0 {
		r.skip(int(length))
	}
	r.skip(4)
	known := r.i32() == 1 && r.i16() == errorNone
	r.skip(int(r.i16()))
	r.skip(1)
	for n := r.i32(); n > 0 && r.err == nil; n-- {
		known = known && r.i16() == errorNone
		r.skip(4)
		known = known && r.i32() >= 0
		r.skip(4 * int(r.i32()))
		r.skip(4 * int(r.i32()))
	}
	return known && r.err == nil
}

// reader is a cursor which remembers the first failure instead of returning it from each call.
type reader struct {
	b   []byte
	err error
}

var errShort = errors.New("the response ends early")

func (r *reader) take(n int) []byte {
	if r.err == nil && (n < 0 || n > len(r.b)) {
		r.err = errShort
	}
	if r.err != nil {
		return make([]byte, 8)
	}
	part := r.b[:n]
	r.b = r.b[n:]
	return part
}

func (r *reader) skip(n int) {
	if r.err == nil && (n < 0 || n > len(r.b)) {
		r.err = errShort
	}
	if r.err == nil {
		r.b = r.b[n:]
	}
}

func (r *reader) i16() int16 { return int16(binary.BigEndian.Uint16(r.take(2))) }
func (r *reader) i32() int32 { return int32(binary.BigEndian.Uint32(r.take(4))) }
func (r *reader) i64() int64 { return int64(binary.BigEndian.Uint64(r.take(8))) }

func (r *reader) uvarint() int {
	value, n := binary.Uvarint(r.b)
	if n <= 0 {
		if r.err == nil {
			r.err = errShort
		}
		return 0
	}
	r.skip(n)
	return int(value)
}

// produceResult reads the one partition of a Produce response; bytes are those that were sent.
func produceResult(body []byte) error {
	r := reader{b: body}
	r.uvarint() // tags of the header
	r.uvarint()
	r.skip(r.uvarint() - 1)
	r.uvarint()
	r.skip(4)
	if code := r.i16(); code != errorNone {
		return fmt.Errorf("Produce answers error %d", code)
	}
	return r.err
}

// fetchResult returns how many bytes of records the one partition of a Fetch response has.
func fetchResult(body []byte) (int, error) {
	r := reader{b: body}
	r.uvarint()
	r.skip(4)
	if code := r.i16(); code != errorNone {
		return 0, fmt.Errorf("Fetch answers error %d", code)
	}
	r.skip(4)
	if r.uvarint() != 2 {
		return 0, errors.New("Fetch answers without the topic")
	}
	r.skip(r.uvarint() - 1)
	r.uvarint()
	r.skip(4)
	if code := r.i16(); code != errorNone {
		return 0, fmt.Errorf("Fetch answers error %d for the partition", code)
	}
	r.skip(24)
	for n := r.uvarint() - 1; n > 0 && r.err == nil; n-- {
		r.skip(16)
		r.skip(1)
	}
	r.skip(4)
	size := r.uvarint() - 1
	if r.err == nil && size <= 0 {
		return 0, errors.New("Fetch answers without records")
	}
	return size, r.err
}

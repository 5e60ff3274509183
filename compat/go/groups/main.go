// Command groups is a member of a group by franz-go; compat/groups.py says what is asked.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type asked struct {
	Bootstrap string  `json:"bootstrap"`
	Topic     string  `json:"topic"`
	Group     string  `json:"group"`
	Protocol  string  `json:"protocol"`
	Instance  *string `json:"instance"`
	SessionMs int     `json:"session_ms"`
}

type reporter struct {
	mutex sync.Mutex
	has   map[int32]bool
}

func say(event map[string]any) {
	line, err := json.Marshal(event)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}

func (r *reporter) change(partitions map[string][]int32, isAssigned bool) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for _, ones := range partitions {
		for _, one := range ones {
			if isAssigned {
				r.has[one] = true
			} else {
				delete(r.has, one)
			}
		}
	}
	now := []int32{}
	for one := range r.has {
		now = append(now, one)
	}
	sort.Slice(now, func(i, j int) bool { return now[i] < now[j] })
	say(map[string]any{"assigned": now})
}

func main() {
	input := bufio.NewReader(os.Stdin)
	line, err := input.ReadBytes('\n')
	if err != nil {
		panic(err)
	}
	var wanted asked
	if err := json.Unmarshal(line, &wanted); err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = input.ReadBytes('\n')
		cancel()
	}()
	report := &reporter{has: map[int32]bool{}}
	balancer := map[string]kgo.GroupBalancer{
		"eager":       kgo.RangeBalancer(),
		"cooperative": kgo.CooperativeStickyBalancer(),
		"consumer":    kgo.StickyBalancer(), // by this name it asks the server for uniform
	}[wanted.Protocol]
	lost := func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
		if len(partitions) > 0 {
			report.change(partitions, false)
		}
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(wanted.Bootstrap),
		kgo.ConsumerGroup(wanted.Group),
		kgo.ConsumeTopics(wanted.Topic),
		kgo.Balancers(balancer),
		kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(time.Duration(wanted.SessionMs) * time.Millisecond),
		kgo.HeartbeatInterval(500 * time.Millisecond),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, given map[string][]int32) {
			report.change(given, true)
		}),
		kgo.OnPartitionsRevoked(lost),
		kgo.OnPartitionsLost(lost),
	}
	if wanted.Protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer())
	}
	if wanted.Instance != nil {
		options = append(options, kgo.InstanceID(*wanted.Instance))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		panic(err)
	}
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		read := [][2]int64{}
		fetches.EachRecord(func(one *kgo.Record) {
			read = append(read, [2]int64{int64(one.Partition), one.Offset})
		})
		if len(read) > 0 {
			if err := client.CommitUncommittedOffsets(context.Background()); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
			say(map[string]any{"records": read})
		}
	}
	client.Close()
	say(map[string]any{"stopped": true})
}

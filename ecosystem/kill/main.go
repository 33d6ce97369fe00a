// kill: kill -9 of a broker at random moments under idempotent load, again and again, then a count
// of what was acknowledged and what is there. See ../README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

type options struct {
	broker, topic, log                     string
	cycles, partitions, producers, members int
	rate                                   int
	seed                                   int64
	ready                                  time.Duration
	command                                []string
}

func parseOptions() (o options, err error) {
	flag.StringVar(&o.broker, "broker", "127.0.0.1:9092", "address of the broker COMMAND starts")
	flag.StringVar(&o.topic, "topic", "kill", "topic to create")
	flag.StringVar(&o.log, "log", "", "file for what the broker prints (default: nowhere)")
	flag.IntVar(&o.cycles, "cycles", 10, "how many times to kill it")
	flag.IntVar(&o.partitions, "partitions", 6, "of the topic")
	flag.IntVar(&o.producers, "producers", 3, "idempotent producers")
	flag.IntVar(&o.members, "members", 2, "members of the group that reads and commits")
	flag.IntVar(&o.rate, "rate", 3000, "records a second, all producers together")
	flag.Int64Var(&o.seed, "seed", time.Now().UnixNano()%1_000_000, "of the moments and the load")
	flag.DurationVar(&o.ready, "ready", time.Minute, "in which the broker must answer after a start")
	flag.Parse()
	o.command = flag.Args()
	if len(o.command) == 0 {
		err = errors.New("usage: kill [options] -- COMMAND that starts the broker in the foreground")
	}
	return o, err
}

func create(o options) error {
	cl, err := kgo.NewClient(clientOptions(o.broker)...)
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_, err = kadm.NewClient(cl).CreateTopic(ctx, int32(o.partitions), 1, nil, o.topic)
	return err
}

// cycle lets the load run for a while, kills, and starts again; one time in four the broker is
// killed a second time while it recovers. It returns how long the broker took to answer.
func cycle(
	o options, n int, b *broker, random *rand.Rand, l *ledger, s *sight,
) (time.Duration, error) {
	alive := 200*time.Millisecond + time.Duration(random.Intn(2300))*time.Millisecond
	time.Sleep(alive)
	b.kill()
	early := time.Duration(0)
	if random.Intn(4) == 0 {
		if err := b.start(); err != nil {
			return 0, err
		}
		early = time.Duration(5+random.Intn(300)) * time.Millisecond
		time.Sleep(early)
		b.kill()
	}
	start := time.Now()
	if err := b.start(); err != nil {
		return 0, err
	}
	if err := b.ready(o.ready); err != nil {
		return 0, err
	}
	took := time.Since(start)
	if err := checkCommits(o, s); err != nil {
		return 0, err
	}
	fmt.Printf("cycle %d: killed after %d ms", n, alive.Milliseconds())
	if early > 0 {
		fmt.Printf(" and again %d ms into recovery", early.Milliseconds())
	}
	fmt.Printf("; back in %d ms; %d acknowledged\n", took.Milliseconds(), l.count())
	return took, nil
}

// load runs the producers and consumers; stop ends the producers, waits for their last
// acknowledgements, ends the consumers and gives the first error of any of them.
func load(o options, l *ledger, s *sight) (stop func() error) {
	produceCtx, endProduce := context.WithCancel(context.Background())
	consumeCtx, endConsume := context.WithCancel(context.Background())
	var producers, consumers sync.WaitGroup
	failed := make(chan error, o.producers+o.members+1)
	run := func(g *sync.WaitGroup, f func() error) {
		g.Go(func() {
			if err := f(); err != nil {
				failed <- err
			}
		})
	}
	for n := range o.producers {
		run(&producers, func() error { return produce(produceCtx, o, n, l) })
	}
	for range o.members {
		run(&consumers, func() error { return member(consumeCtx, o, s) })
	}
	run(&consumers, func() error { return tail(consumeCtx, o, s) })
	return func() error {
		endProduce()
		producers.Wait()
		time.Sleep(time.Second) // the readers get what came last
		endConsume()
		consumers.Wait()
		select {
		case err := <-failed:
			return err
		default:
			return nil
		}
	}
}

func run(o options) error {
	log, err := os.OpenFile(cmpOr(o.log, os.DevNull), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	b := &broker{command: o.command, address: o.broker, log: log}
	if err := b.start(); err != nil {
		return err
	}
	defer func() { b.kill() }()
	if err := b.ready(o.ready); err != nil {
		return err
	}
	if err := create(o); err != nil {
		return fmt.Errorf("create topic: %w", err)
	}
	random, l, s := rand.New(rand.NewSource(o.seed)), newLedger(), newSight()
	stop, back := load(o, l, s), []time.Duration{}
	for n := 1; n <= o.cycles; n++ {
		took, err := cycle(o, n, b, random, l, s)
		if err != nil {
			return fmt.Errorf("cycle %d: %w", n, err)
		}
		back = append(back, took)
	}
	if err := stop(); err != nil {
		return err
	}
	b.kill() // once more, so that what is read now has been recovered
	if err := b.start(); err != nil {
		return err
	}
	if err := b.ready(o.ready); err != nil {
		return fmt.Errorf("last start: %w", err)
	}
	if err := checkCommits(o, s); err != nil {
		return err
	}
	all, gaps, err := readAll(o)
	if err != nil {
		return err
	}
	return report(o, verify(all, l, s), gaps, l, s, back)
}

func report(o options, v outcome, gaps []string, l *ledger, s *sight, back []time.Duration) error {
	slices.Sort(back)
	fmt.Printf("kills %d, sent %d, acknowledged %d, read back %d (of them unacknowledged %d)\n",
		len(back)+1, l.sent, len(l.acked), v.read, v.unacked)
	fmt.Printf("read meanwhile %d, commits acknowledged %d, back in %d ms (median), %d ms (most)\n",
		s.read, s.commits, back[len(back)/2].Milliseconds(), back[len(back)-1].Milliseconds())
	faults := slices.Concat(l.errors, l.reused, s.faults, gaps, v.faults)
	fmt.Printf("lost %d, doubled %d, moved %d, reused %d, out of order %d, gaps or damage %d, "+
		"errors %d, readers' faults %d\n", v.lost, v.doubled, v.moved, v.reused+len(l.reused),
		v.disordered, len(gaps), len(l.errors), len(s.faults))
	for _, f := range faults[:min(len(faults), 40)] {
		fmt.Println("  " + f)
	}
	if len(faults) > 0 {
		return fmt.Errorf("seed %d: %d faults", o.seed, len(faults))
	}
	if len(l.acked) == 0 {
		return errors.New("nothing was acknowledged: this run proves nothing")
	}
	return nil
}

func cmpOr(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

func main() {
	o, err := parseOptions()
	if err == nil {
		fmt.Printf("seed %d, %d cycles\n", o.seed, o.cycles)
		err = run(o)
	}
	if err != nil {
		fmt.Println("kill FAIL:", err)
		os.Exit(1)
	}
	fmt.Println("kill PASS")
}

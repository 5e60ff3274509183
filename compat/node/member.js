"use strict";
// kafkajs as a member of a group; compat/groups.py says what is asked.

const path = require("node:path");
const readline = require("node:readline");

const { Kafka, logLevel } = require(path.join(process.env.OTTLA_NODE_MODULES, "kafkajs"));

function say(event) {
  process.stdout.write(`${JSON.stringify(event)}\n`);
}

async function main() {
  const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  const asked = JSON.parse((await lines.next()).value);
  const kafka = new Kafka({ brokers: [asked.bootstrap], logLevel: logLevel.NOTHING });
  const consumer = kafka.consumer({
    groupId: asked.group, sessionTimeout: asked.session_ms, rebalanceTimeout: 10_000,
    heartbeatInterval: 500,
  });
  let last = null;
  function report(partitions) {
    const text = JSON.stringify(partitions.sort((a, b) => a - b));
    if (text !== last) say({ assigned: partitions });
    last = text;
  }
  consumer.on(consumer.events.GROUP_JOIN, (event) => {
    report(event.payload.memberAssignment[asked.topic] || []);
  });
  consumer.on(consumer.events.REBALANCING, () => report([]));
  await consumer.connect();
  await consumer.subscribe({ topics: [asked.topic], fromBeginning: true });
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ topic, partition, message }) => {
      const offset = (BigInt(message.offset) + 1n).toString();
      await consumer.commitOffsets([{ topic, partition, offset }]);
      say({ records: [[partition, Number(message.offset)]] });
    },
  });
  await lines.next();
  await consumer.disconnect();
  say({ stopped: true });
  process.exit(0);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});

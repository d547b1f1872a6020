/** What a node may know about where it runs. All of it is durable: a node that is started again sees the same values. */

import * as wit from "twice:node/context@0.1.0";

/** The id of the run. */
export const runId = (): string => wit.runId();

/** The name of the node in the workflow. */
export const node = (): string => wit.node();

/** Which visit of the node in this run, from 1. */
export const visit = (): number => wit.visit();

/** Which attempt of this visit, from 1. For logs: nothing that is requested may depend on it. */
export const attempt = (): number => wit.attempt();

/**
 * Milliseconds since 1970-01-01T00:00:00Z: when the step became due, moved forward by each answered effect to the time of
 * its answer.
 */
export const now = (): number => wit.now();

/** `count` random bytes, at most 65,536. Continues from call to call. Not secret: whoever knows the run can compute them. */
export const random = (count: number): Uint8Array => wit.random(count);

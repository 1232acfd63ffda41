/* Cron expressions: whatever the text, the ticks of one that is accepted go forward, and none is passed over. */
#include "postgres.h"

#include "cron.h"
#include "fuzz.h"

#define START (INT64CONST(800000000) * USECS_PER_SEC)	/* in 2025 */

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char	   *text = pnstrdup((const char *) data, size);
	CronError	error = {0};
	Cron		cron;
	TimestampTz tick = START + (size > 0 ? data[size - 1] : 0) * USECS_PER_DAY;

	if (!cron_parse(text, &cron, &error))
		ALWAYS(error.detail != NULL);
	else
		for (int i = 0; i < 20 && tick != DT_NOEND; i++)
		{
			TimestampTz next = cron_next(&cron, NULL, tick);

			ALWAYS(next > tick);
			if (next != DT_NOEND && cron.interval == 0 && next - tick > USECS_PER_SEC)
				ALWAYS(cron_next(&cron, NULL, tick + (next - tick) / 2) == next);
			if (next != DT_NOEND)
				ALWAYS(cron_next_of_series(&cron, NULL, tick, tick) > tick);
			tick = next;
		}
	fuzz_free_all();
	return 0;
}

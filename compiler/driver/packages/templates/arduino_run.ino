// Runs the network @{name} once a second.
#include <@{name}.h>

@{inputs}

void setup() { Serial.begin(115200); }

void loop() {
    unsigned long start = micros();
    int status = @{name}_run(@{call}, @{name}_arena);
    Serial.print(status == 0 ? "microseconds: " : "failed after microseconds: ");
    Serial.println(micros() - start);
    delay(1000);
}
